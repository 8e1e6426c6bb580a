import{a,b}from"./chunk-SISPU6H3.js";import"./chunk-I4Q5E7LI.js";import"./chunk-H3DJTKO3.js";import"./chunk-GC6J5VHE.js";export{a as NodeScreen,b as OwnNode};
