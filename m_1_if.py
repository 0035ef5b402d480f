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
def kernel(a0, a1, a2, a3, a4, a5, a6):
    pid = tl.program_id(0)
    which = pid // 576
    rest = pid % 576
    p0 = a0
    p1 = a1
    p2 = a2
    p3 = a3
    p4 = a4
    p5 = a5
    p6 = a6
    part(rest, p0, p1, p2, p3, p4, p5, p6)
