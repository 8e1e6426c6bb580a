import{a,b}from"./chunk-UW5TA3JH.js";import"./chunk-GRJONIEV.js";import"./chunk-54DYPSO3.js";import"./chunk-6GPJJ3U3.js";import"./chunk-KO7QDS4X.js";export{b as Reason,a as WaitingScreen};
