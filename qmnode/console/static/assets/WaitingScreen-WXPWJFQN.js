import{a,b}from"./chunk-Q3PQYCYR.js";import"./chunk-YWMM5TEE.js";import"./chunk-X525XZFF.js";import"./chunk-UH7NNH2F.js";export{b as Reason,a as WaitingScreen};
