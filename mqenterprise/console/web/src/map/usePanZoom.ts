import { type KeyboardEvent, type PointerEvent, type RefObject, useCallback, useEffect, useRef, useState } from "react";

export interface View {
  readonly x: number;
  readonly y: number;
  readonly scale: number;
}

const LEAST = 0.05;
const MOST = 4;
const STEP = 1.25;
const MOVE = 80;
/** Pixels at the right and left that the buttons beside the drawing need. */
const TOOLS = 52;

/** Moving and zooming a drawing of a given size: by mouse, touch, wheel and keys. */
export function usePanZoom(frame: RefObject<SVGSVGElement | null>, width: number, height: number) {
  const [view, setView] = useState<View>({ x: 0, y: 0, scale: 1 });
  const dragged = useRef<{ x: number; y: number; moved: boolean } | null>(null);
  const touched = useRef(false);

  const fit = useCallback(() => {
    const box = frame.current?.getBoundingClientRect();
    if (!box?.width || !box.height || !width || !height) return;
    const free = Math.max(box.width - 2 * TOOLS, box.width / 2);
    const scale = Math.min(free / width, box.height / height, 1.6);
    touched.current = false;
    setView({ scale, x: (box.width - width * scale) / 2, y: (box.height - height * scale) / 2 });
  }, [frame, width, height]);

  const zoom = useCallback(
    (factor: number, at?: { x: number; y: number }) => {
      const box = frame.current?.getBoundingClientRect();
      const centre = at ?? { x: (box?.width ?? 0) / 2, y: (box?.height ?? 0) / 2 };
      touched.current = true;
      setView((old) => {
        const scale = Math.min(Math.max(old.scale * factor, LEAST), MOST);
        const by = scale / old.scale;
        return { scale, x: centre.x - (centre.x - old.x) * by, y: centre.y - (centre.y - old.y) * by };
      });
    },
    [frame],
  );

  /** Put a point of the drawing into the middle. */
  const centre = useCallback(
    (point: { x: number; y: number }, least = 0.7) => {
      const box = frame.current?.getBoundingClientRect();
      if (!box) return;
      touched.current = true;
      setView((old) => {
        const scale = Math.max(old.scale, least);
        return { scale, x: box.width / 2 - point.x * scale, y: box.height / 2 - point.y * scale };
      });
    },
    [frame],
  );

  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const observer = new ResizeObserver(() => {
      if (!touched.current) fit();
    });
    observer.observe(element);
    // React listens to wheels passively: the page would scroll as well.
    const wheel = (event: WheelEvent) => {
      event.preventDefault();
      const box = element.getBoundingClientRect();
      zoom(Math.exp(-event.deltaY / 500), { x: event.clientX - box.left, y: event.clientY - box.top });
    };
    element.addEventListener("wheel", wheel, { passive: false });
    return () => {
      observer.disconnect();
      element.removeEventListener("wheel", wheel);
    };
  }, [frame, fit, zoom]);

  useEffect(fit, [fit]);

  const onPointerDown = (event: PointerEvent<SVGSVGElement>) => {
    if (event.button === 0) dragged.current = { x: event.clientX, y: event.clientY, moved: false };
  };
  const onPointerMove = (event: PointerEvent<SVGSVGElement>) => {
    const from = dragged.current;
    if (!from || event.buttons === 0) return;
    const [dx, dy] = [event.clientX - from.x, event.clientY - from.y];
    if (!from.moved && Math.hypot(dx, dy) < 5) return;
    // Only now: a captured pointer would take the click from what is under it.
    if (!from.moved) event.currentTarget.setPointerCapture(event.pointerId);
    dragged.current = { x: event.clientX, y: event.clientY, moved: true };
    touched.current = true;
    setView((old) => ({ ...old, x: old.x + dx, y: old.y + dy }));
  };
  const onPointerUp = () => {
    dragged.current = null;
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const moves: Record<string, [number, number]> = {
      ArrowLeft: [MOVE, 0],
      ArrowRight: [-MOVE, 0],
      ArrowUp: [0, MOVE],
      ArrowDown: [0, -MOVE],
    };
    const move = moves[event.key];
    if (move) setView((old) => ({ ...old, x: old.x + move[0], y: old.y + move[1] }));
    else if (event.key === "+" || event.key === "=") zoom(STEP);
    else if (event.key === "-") zoom(1 / STEP);
    else if (event.key === "0") fit();
    else return;
    if (move) touched.current = true;
    event.preventDefault();
  };
  return { view, fit, zoom, centre, step: STEP, handlers: { onPointerDown, onPointerMove, onPointerUp, onKeyDown } };
}
