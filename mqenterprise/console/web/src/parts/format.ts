/** Numbers, sizes and times as people read them. */

import { strings } from "../strings";

export type Zone = "utc" | "local";

const whole = new Intl.NumberFormat("en-GB");
const UNITS = ["B", "KB", "MB", "GB", "TB", "PB"];

/** A whole number with separators. */
export function count(value: number): string {
  return whole.format(Math.round(value));
}

/** A size in bytes, in units of 1,000. */
export function size(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (Math.abs(value) >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

/** The same with the exact number beside it, where that says more. */
export function exactSize(bytes: number): string {
  return Math.abs(bytes) < 1000 ? size(bytes) : `${size(bytes)} (${count(bytes)} B)`;
}

/** A message class without what all of them begin with, after the word for it if it has one. */
export function classWord(name: string): string {
  const short = name.replace(/^MQMSG_CLASS_/, "");
  const word = (strings.classes as Record<string, string>)[short];
  return word ? `${word} (${short})` : short;
}

/** A rate per second: few digits, so that a column of them can be compared. */
export function rate(value: number): string {
  if (value === 0) return "0";
  if (value < 0.1) return "<0.1";
  return value < 10 ? value.toFixed(1) : count(value);
}

/** A span of time in seconds, in its two largest units. */
export function span(seconds: number): string {
  const left = Math.max(0, Math.round(seconds));
  const parts: [number, string][] = [
    [Math.floor(left / 86400), "d"],
    [Math.floor(left / 3600) % 24, "h"],
    [Math.floor(left / 60) % 60, "min"],
    [left % 60, "s"],
  ];
  const first = parts.findIndex(([value]) => value > 0);
  if (first < 0) return "0 s";
  return parts
    .slice(first, first + 2)
    .filter(([value]) => value > 0)
    .map(([value, unit]) => `${value} ${unit}`)
    .join(" ");
}

const pad = (value: number, width = 2) => String(value).padStart(width, "0");

/** Year to second of a moment, in UTC or in the zone of the viewer, with the zone. */
export function moment(at: Date, zone: Zone): string {
  if (Number.isNaN(at.getTime())) return "";
  if (zone === "utc") {
    const iso = at.toISOString();
    return `${iso.slice(0, 10)} ${iso.slice(11, 19)} UTC`;
  }
  const offset = -at.getTimezoneOffset();
  const sign = offset < 0 ? "-" : "+";
  const day = `${pad(at.getFullYear(), 4)}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  const time = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  const away = Math.abs(offset);
  return `${day} ${time} ${sign}${pad(Math.floor(away / 60))}:${pad(away % 60)}`;
}
