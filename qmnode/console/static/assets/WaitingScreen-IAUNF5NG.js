import{a,b}from"./chunk-NHNZCGJO.js";import"./chunk-VEI6KMGJ.js";import"./chunk-A6CCU5NB.js";import"./chunk-LWR3MUKI.js";export{b as Reason,a as WaitingScreen};
