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
            p0 = tl.where(which < 3, tl.where(which < 1, a0, tl.where(which < 2, a7, a14)), tl.where(which < 4, a21, tl.where(which < 5, a28, a35)))
            p1 = tl.where(which < 3, tl.where(which < 1, a1, tl.where(which < 2, a8, a15)), tl.where(which < 4, a22, tl.where(which < 5, a29, a36)))
            p2 = tl.where(which < 3, tl.where(which < 1, a2, tl.where(which < 2, a9, a16)), tl.where(which < 4, a23, tl.where(which < 5, a30, a37)))
            p3 = tl.where(which < 3, tl.where(which < 1, a3, tl.where(which < 2, a10, a17)), tl.where(which < 4, a24, tl.where(which < 5, a31, a38)))
            p4 = tl.where(which < 3, tl.where(which < 1, a4, tl.where(which < 2, a11, a18)), tl.where(which < 4, a25, tl.where(which < 5, a32, a39)))
            p5 = tl.where(which < 3, tl.where(which < 1, a5, tl.where(which < 2, a12, a19)), tl.where(which < 4, a26, tl.where(which < 5, a33, a40)))
            p6 = tl.where(which < 3, tl.where(which < 1, a6, tl.where(which < 2, a13, a20)), tl.where(which < 4, a27, tl.where(which < 5, a34, a41)))
        else:
            p0 = tl.where(which < 9, tl.where(which < 7, a42, tl.where(which < 8, a49, a56)), tl.where(which < 10, a63, tl.where(which < 11, a70, a77)))
            p1 = tl.where(which < 9, tl.where(which < 7, a43, tl.where(which < 8, a50, a57)), tl.where(which < 10, a64, tl.where(which < 11, a71, a78)))
            p2 = tl.where(which < 9, tl.where(which < 7, a44, tl.where(which < 8, a51, a58)), tl.where(which < 10, a65, tl.where(which < 11, a72, a79)))
            p3 = tl.where(which < 9, tl.where(which < 7, a45, tl.where(which < 8, a52, a59)), tl.where(which < 10, a66, tl.where(which < 11, a73, a80)))
            p4 = tl.where(which < 9, tl.where(which < 7, a46, tl.where(which < 8, a53, a60)), tl.where(which < 10, a67, tl.where(which < 11, a74, a81)))
            p5 = tl.where(which < 9, tl.where(which < 7, a47, tl.where(which < 8, a54, a61)), tl.where(which < 10, a68, tl.where(which < 11, a75, a82)))
            p6 = tl.where(which < 9, tl.where(which < 7, a48, tl.where(which < 8, a55, a62)), tl.where(which < 10, a69, tl.where(which < 11, a76, a83)))
    else:
        if which < 18:
            p0 = tl.where(which < 15, tl.where(which < 13, a84, tl.where(which < 14, a91, a98)), tl.where(which < 16, a105, tl.where(which < 17, a112, a119)))
            p1 = tl.where(which < 15, tl.where(which < 13, a85, tl.where(which < 14, a92, a99)), tl.where(which < 16, a106, tl.where(which < 17, a113, a120)))
            p2 = tl.where(which < 15, tl.where(which < 13, a86, tl.where(which < 14, a93, a100)), tl.where(which < 16, a107, tl.where(which < 17, a114, a121)))
            p3 = tl.where(which < 15, tl.where(which < 13, a87, tl.where(which < 14, a94, a101)), tl.where(which < 16, a108, tl.where(which < 17, a115, a122)))
            p4 = tl.where(which < 15, tl.where(which < 13, a88, tl.where(which < 14, a95, a102)), tl.where(which < 16, a109, tl.where(which < 17, a116, a123)))
            p5 = tl.where(which < 15, tl.where(which < 13, a89, tl.where(which < 14, a96, a103)), tl.where(which < 16, a110, tl.where(which < 17, a117, a124)))
            p6 = tl.where(which < 15, tl.where(which < 13, a90, tl.where(which < 14, a97, a104)), tl.where(which < 16, a111, tl.where(which < 17, a118, a125)))
        else:
            p0 = tl.where(which < 21, tl.where(which < 19, a126, tl.where(which < 20, a133, a140)), tl.where(which < 22, a147, tl.where(which < 23, a154, a161)))
            p1 = tl.where(which < 21, tl.where(which < 19, a127, tl.where(which < 20, a134, a141)), tl.where(which < 22, a148, tl.where(which < 23, a155, a162)))
            p2 = tl.where(which < 21, tl.where(which < 19, a128, tl.where(which < 20, a135, a142)), tl.where(which < 22, a149, tl.where(which < 23, a156, a163)))
            p3 = tl.where(which < 21, tl.where(which < 19, a129, tl.where(which < 20, a136, a143)), tl.where(which < 22, a150, tl.where(which < 23, a157, a164)))
            p4 = tl.where(which < 21, tl.where(which < 19, a130, tl.where(which < 20, a137, a144)), tl.where(which < 22, a151, tl.where(which < 23, a158, a165)))
            p5 = tl.where(which < 21, tl.where(which < 19, a131, tl.where(which < 20, a138, a145)), tl.where(which < 22, a152, tl.where(which < 23, a159, a166)))
            p6 = tl.where(which < 21, tl.where(which < 19, a132, tl.where(which < 20, a139, a146)), tl.where(which < 22, a153, tl.where(which < 23, a160, a167)))
    part(rest, p0, p1, p2, p3, p4, p5, p6)
