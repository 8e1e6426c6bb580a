import{a,b}from"./chunk-L44NRP5X.js";import"./chunk-YWMM5TEE.js";import"./chunk-X525XZFF.js";import"./chunk-UH7NNH2F.js";export{a as NodeScreen,b as OwnNode};
