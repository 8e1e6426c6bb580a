import{a,b}from"./chunk-3ALGN67S.js";import"./chunk-VEI6KMGJ.js";import"./chunk-A6CCU5NB.js";import"./chunk-LWR3MUKI.js";export{a as NodeScreen,b as OwnNode};
