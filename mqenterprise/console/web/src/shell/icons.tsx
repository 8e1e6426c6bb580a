import type { ReactNode } from "react";

/** Symbols of the console, drawn on a grid of 24. Always beside a word or with a label, so hidden from readers. */
const PATHS = {
  map: "M5 7a2 2 0 1 0 4 0a2 2 0 1 0-4 0M15 5a2 2 0 1 0 4 0a2 2 0 1 0-4 0M13 18a2 2 0 1 0 4 0a2 2 0 1 0-4 0M9 7l6-2M8 8.6l5.8 7.8M16.6 6.9L15.2 16",
  queues: "M4 6h16M4 12h16M4 18h10",
  failures: "M12 4l9 16H3zM12 10v4M12 17v.01",
  search: "M10.5 4a6.5 6.5 0 1 0 0 13a6.5 6.5 0 0 0 0-13M15.5 15.5L20 20",
  routes: "M5 19a2 2 0 1 0 0-4a2 2 0 0 0 0 4M19 9a2 2 0 1 0 0-4a2 2 0 0 0 0 4M7 17h8a4 4 0 0 0 0-8H9a2 2 0 0 1 0-4h8",
  keys: "M8 15.5a3.5 3.5 0 1 0 0-7a3.5 3.5 0 0 0 0 7M11.5 12H21M18 12v3M15 12v2",
  plan: "M6 4h9l4 4v12H6zM9 13h6M12 10v6M9 18.5h6",
  jobs: "M12 4a8 8 0 1 0 8 8M12 8v4l3 2",
  audit: "M7 4h10v16H7zM10 8h4M10 12h4M10 16h2",
  message: "M4 6h16v12H4zM4 7l8 6l8-6",
  menu: "M4 7h16M4 12h16M4 17h16",
  sun: "M12 8a4 4 0 1 0 0 8a4 4 0 0 0 0-8M12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.6L7 7M17 17l1.4 1.4M18.4 5.6L17 7M7 17l-1.4 1.4",
  moon: "M19 14.5A7.5 7.5 0 0 1 9.5 5A7.5 7.5 0 1 0 19 14.5",
  clock: "M12 4a8 8 0 1 0 0 16a8 8 0 0 0 0-16M12 8v4l3 2",
  person: "M12 5a3.5 3.5 0 1 0 0 7a3.5 3.5 0 0 0 0-7M5 20a7 7 0 0 1 14 0",
  close: "M6 6l12 12M18 6L6 18",
  up: "M6 15l6-6l6 6",
  down: "M6 9l6 6l6-6",
  right: "M9 6l6 6l-6 6",
  left: "M15 6l-6 6l6 6",
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  fit: "M4 9V4h5M15 4h5v5M20 15v5h-5M9 20H4v-5",
  refresh: "M19 8a8 8 0 1 0 1 5M20 4v5h-5",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 20 }: { name: IconName; size?: number }): ReactNode {
  return (
    <svg width={size} height={size} viewBox="0 0 24 24" className="icon" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
