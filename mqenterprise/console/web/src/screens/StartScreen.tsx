import type { ReactNode } from "react";
import { useSession } from "../api/session";
import { MapScreen } from "./MapScreen";
import { OwnNode } from "./NodeScreen";

/** The first screen: the map of an enterprise, or the state of a node alone. */
export function StartScreen(): ReactNode {
  return useSession().features.includes("map") ? <MapScreen /> : <OwnNode />;
}
