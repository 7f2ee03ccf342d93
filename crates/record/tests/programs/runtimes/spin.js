// Three functions, one calling the other, that use the CPU for a while.
'use strict';
const fs = require('fs');

function leafWork(n) {
  let x = 0;
  for (let i = 0; i < n; i++) x = (x * 31 + i) % 1000003;
  return x;
}

function middleWork(n) {
  let sum = 0;
  for (let i = 0; i < 10; i++) sum += leafWork(n);
  return sum;
}

function entryWork(n) {
  return middleWork(n) + 1;
}

const seconds = Number(process.argv[2]);
let total = 0;
for (let i = 0; i < 50; i++) total += entryWork(10000);
fs.writeSync(1, 'ready\n');
fs.readSync(0, Buffer.alloc(16));
const from = process.cpuUsage().user;
while (process.cpuUsage().user - from < seconds * 1e6) total += entryWork(100000);
fs.writeSync(1, `total ${total}\n`);
