import{a,b}from"./chunk-ZZOT7J3F.js";import"./chunk-E7DRP426.js";import"./chunk-6J6ZUKDJ.js";import"./chunk-G4JK7TZR.js";export{b as Reason,a as WaitingScreen};
