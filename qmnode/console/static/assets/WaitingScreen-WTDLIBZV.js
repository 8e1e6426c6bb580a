import{a,b}from"./chunk-24BUP5XU.js";import"./chunk-7WT26LCA.js";import"./chunk-U6XQQXUQ.js";import"./chunk-YBHWXL4O.js";export{b as Reason,a as WaitingScreen};
