import{a,b}from"./chunk-QSDUV3AB.js";import"./chunk-YWMM5TEE.js";import"./chunk-GX743VVX.js";import"./chunk-UH7NNH2F.js";export{b as Reason,a as WaitingScreen};
