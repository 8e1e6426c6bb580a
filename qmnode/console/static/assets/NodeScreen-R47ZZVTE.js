import{a,b}from"./chunk-SHBHO3XG.js";import"./chunk-YWMM5TEE.js";import"./chunk-GX743VVX.js";import"./chunk-UH7NNH2F.js";export{a as NodeScreen,b as OwnNode};
