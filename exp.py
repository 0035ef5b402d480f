import sys, torch, statistics
import compiler.codegen.tile as T
import suites.gpu.bench as B
from suites.gpu.programs import PROGRAMS
rate=B.copy_rate()
names=sys.argv[1].split(",")
def go(label):
    out=[]
    for p in PROGRAMS:
        if p.name in names:
            r=B.measured(p,["assay"],rate); out.append(f"{p.name} {r.get('assay_share',-1):.2f}")
    print(label," ".join(out),flush=True)
for across in [(32,128),(16,128),(32,64),(16,256),(64,64),(8,256),(8,512),(16,64)]:
  for red in (512,1024):
    for inst in (1056,2112):
        T.ACROSS=across; T.INSTANCES=inst
        T._warps=lambda n,e=512,red=red: max(1,min(16,T.power_above(n)//red))
        go((across,red,inst))
