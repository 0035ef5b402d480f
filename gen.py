import sys, importlib.util, time
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
import triton
N=int(sys.argv[1]); way=sys.argv[2]; B=7
names=[f"a{n}" for n in range(N*B)]
def tree(lo,hi,ind):
    if hi-lo==1: return [f"{ind}p{b} = a{lo*B+b}" for b in range(B)]
    mid=(lo+hi)//2
    return [f"{ind}if which < {mid}:",*tree(lo,mid,ind+"    "),f"{ind}else:",*tree(mid,hi,ind+"    ")]
def where(lo,hi,b):
    if hi-lo==1: return f"a{lo*B+b}"
    mid=(lo+hi)//2
    return f"tl.where(which < {mid}, {where(lo,mid,b)}, {where(mid,hi,b)})"
def hybrid(lo,hi,ind,leaf):
    if hi-lo<=leaf: return [f"{ind}p{b} = {where(lo,hi,b)}" for b in range(B)]
    mid=(lo+hi)//2
    return [f"{ind}if which < {mid}:",*hybrid(lo,mid,ind+"    ",leaf),f"{ind}else:",*hybrid(mid,hi,ind+"    ",leaf)]
body="\n".join(tree(0,N,"    ")) if way=="if" else "\n".join(hybrid(0,N,"    ",int(way[3:]))) if way.startswith("hyb") else "\n".join(f"    p{b} = {where(0,N,b)}" for b in range(B))
text=f'''import triton
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
def kernel({", ".join(names)}):
    pid = tl.program_id(0)
    which = pid // 576
    rest = pid % 576
{body}
    part(rest, {", ".join(f"p{b}" for b in range(B))})
'''
open(f"m_{N}_{way}.py","w").write(text)
spec=importlib.util.spec_from_file_location("m",f"m_{N}_{way}.py"); mod=importlib.util.module_from_spec(spec); sys.modules["m"]=mod; spec.loader.exec_module(mod)
src=ASTSource(fn=mod.kernel,signature={n:"*fp32" for n in names},constexprs={},attrs={(i,):[["tt.divisibility",16]] for i in range(len(names))})
t=time.time()
c=triton.compile(src,target=GPUTarget("cuda",90,32),options={"num_warps":2,"enable_fp_fusion":False})
print("compile",time.time()-t)
ptx=c.asm["ptx"]; open(f"k_{N}_{way}.ptx","w").write(ptx)
import re,collections
print(collections.Counter(re.findall(r"(ld\.global\S*|st\.global\S*|selp\.b64|bra\b|ld\.param\S*|\.local)",ptx)))
