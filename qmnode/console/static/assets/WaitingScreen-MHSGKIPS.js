import{a,b}from"./chunk-5JH6PV75.js";import"./chunk-R3SZG66U.js";import"./chunk-NGV3TGZB.js";import"./chunk-HITT5L6D.js";export{b as Reason,a as WaitingScreen};
