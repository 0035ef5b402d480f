import triton
import triton.language as tl
@triton.jit
def part(pid, p, g, m, v, po, mo, vo):
    y = pid * 1024 + tl.arange(0, 1024)[None, :]
    in_y = y < 589824
    gv = tl.load(g + y, mask=in_y, other=0)
    mv = tl.load(m + y, mask=in_y, other=0)
    vv = tl.load(v + y, mask=in_y, other=0)
    pv = tl.load(p + y, mask=in_y, other=0)
    mn = mv * 0.9 + gv * 0.1
    vn = vv * 0.99 + gv * gv * 0.01
    tl.store(mo + y, mn, mask=in_y)
    tl.store(vo + y, vn, mask=in_y)
    tl.store(po + y, pv - mn / (tl.sqrt(vn) + 1e-8), mask=in_y)

@triton.jit
def kernel(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32, a33, a34, a35, a36, a37, a38, a39, a40, a41, a42, a43, a44, a45, a46, a47, a48, a49, a50, a51, a52, a53, a54, a55, a56, a57, a58, a59, a60, a61, a62, a63, a64, a65, a66, a67, a68, a69, a70, a71, a72, a73, a74, a75, a76, a77, a78, a79, a80, a81, a82, a83, a84, a85, a86, a87, a88, a89, a90, a91, a92, a93, a94, a95, a96, a97, a98, a99, a100, a101, a102, a103, a104, a105, a106, a107, a108, a109, a110, a111, a112, a113, a114, a115, a116, a117, a118, a119, a120, a121, a122, a123, a124, a125, a126, a127, a128, a129, a130, a131, a132, a133, a134, a135, a136, a137, a138, a139, a140, a141, a142, a143, a144, a145, a146, a147, a148, a149, a150, a151, a152, a153, a154, a155, a156, a157, a158, a159, a160, a161, a162, a163, a164, a165, a166, a167):
    pid = tl.program_id(0)
    which = pid // 576
    rest = pid % 576
    if which < 12:
        if which < 6:
            if which < 3:
                if which < 1:
                    p0 = a0
                    p1 = a1
                    p2 = a2
                    p3 = a3
                    p4 = a4
                    p5 = a5
                    p6 = a6
                else:
                    if which < 2:
                        p0 = a7
                        p1 = a8
                        p2 = a9
                        p3 = a10
                        p4 = a11
                        p5 = a12
                        p6 = a13
                    else:
                        p0 = a14
                        p1 = a15
                        p2 = a16
                        p3 = a17
                        p4 = a18
                        p5 = a19
                        p6 = a20
            else:
                if which < 4:
                    p0 = a21
                    p1 = a22
                    p2 = a23
                    p3 = a24
                    p4 = a25
                    p5 = a26
                    p6 = a27
                else:
                    if which < 5:
                        p0 = a28
                        p1 = a29
                        p2 = a30
                        p3 = a31
                        p4 = a32
                        p5 = a33
                        p6 = a34
                    else:
                        p0 = a35
                        p1 = a36
                        p2 = a37
                        p3 = a38
                        p4 = a39
                        p5 = a40
                        p6 = a41
        else:
            if which < 9:
                if which < 7:
                    p0 = a42
                    p1 = a43
                    p2 = a44
                    p3 = a45
                    p4 = a46
                    p5 = a47
                    p6 = a48
                else:
                    if which < 8:
                        p0 = a49
                        p1 = a50
                        p2 = a51
                        p3 = a52
                        p4 = a53
                        p5 = a54
                        p6 = a55
                    else:
                        p0 = a56
                        p1 = a57
                        p2 = a58
                        p3 = a59
                        p4 = a60
                        p5 = a61
                        p6 = a62
            else:
                if which < 10:
                    p0 = a63
                    p1 = a64
                    p2 = a65
                    p3 = a66
                    p4 = a67
                    p5 = a68
                    p6 = a69
                else:
                    if which < 11:
                        p0 = a70
                        p1 = a71
                        p2 = a72
                        p3 = a73
                        p4 = a74
                        p5 = a75
                        p6 = a76
                    else:
                        p0 = a77
                        p1 = a78
                        p2 = a79
                        p3 = a80
                        p4 = a81
                        p5 = a82
                        p6 = a83
    else:
        if which < 18:
            if which < 15:
                if which < 13:
                    p0 = a84
                    p1 = a85
                    p2 = a86
                    p3 = a87
                    p4 = a88
                    p5 = a89
                    p6 = a90
                else:
                    if which < 14:
                        p0 = a91
                        p1 = a92
                        p2 = a93
                        p3 = a94
                        p4 = a95
                        p5 = a96
                        p6 = a97
                    else:
                        p0 = a98
                        p1 = a99
                        p2 = a100
                        p3 = a101
                        p4 = a102
                        p5 = a103
                        p6 = a104
            else:
                if which < 16:
                    p0 = a105
                    p1 = a106
                    p2 = a107
                    p3 = a108
                    p4 = a109
                    p5 = a110
                    p6 = a111
                else:
                    if which < 17:
                        p0 = a112
                        p1 = a113
                        p2 = a114
                        p3 = a115
                        p4 = a116
                        p5 = a117
                        p6 = a118
                    else:
                        p0 = a119
                        p1 = a120
                        p2 = a121
                        p3 = a122
                        p4 = a123
                        p5 = a124
                        p6 = a125
        else:
            if which < 21:
                if which < 19:
                    p0 = a126
                    p1 = a127
                    p2 = a128
                    p3 = a129
                    p4 = a130
                    p5 = a131
                    p6 = a132
                else:
                    if which < 20:
                        p0 = a133
                        p1 = a134
                        p2 = a135
                        p3 = a136
                        p4 = a137
                        p5 = a138
                        p6 = a139
                    else:
                        p0 = a140
                        p1 = a141
                        p2 = a142
                        p3 = a143
                        p4 = a144
                        p5 = a145
                        p6 = a146
            else:
                if which < 22:
                    p0 = a147
                    p1 = a148
                    p2 = a149
                    p3 = a150
                    p4 = a151
                    p5 = a152
                    p6 = a153
                else:
                    if which < 23:
                        p0 = a154
                        p1 = a155
                        p2 = a156
                        p3 = a157
                        p4 = a158
                        p5 = a159
                        p6 = a160
                    else:
                        p0 = a161
                        p1 = a162
                        p2 = a163
                        p3 = a164
                        p4 = a165
                        p5 = a166
                        p6 = a167
    part(rest, p0, p1, p2, p3, p4, p5, p6)
