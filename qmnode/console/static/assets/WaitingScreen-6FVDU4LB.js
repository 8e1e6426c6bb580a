import{a,b}from"./chunk-SYCCRSKM.js";import"./chunk-BLNENEHF.js";import"./chunk-DDG7RRS5.js";import"./chunk-RNCNQXNN.js";export{b as Reason,a as WaitingScreen};
