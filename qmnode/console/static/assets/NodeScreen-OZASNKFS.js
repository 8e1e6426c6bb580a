import{a,b}from"./chunk-FANVH2JN.js";import"./chunk-R3SZG66U.js";import"./chunk-NGV3TGZB.js";import"./chunk-HITT5L6D.js";export{a as NodeScreen,b as OwnNode};
