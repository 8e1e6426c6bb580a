import { useDebouncedValue, useHotkeys } from "@mantine/hooks";
import { createSpotlight, Spotlight, type SpotlightActionData } from "@mantine/spotlight";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { calls } from "../api/calls";
import { useSession } from "../api/session";
import { setZone } from "../parts/preferences";
import { beginning, visible } from "../parts/text";
import { strings } from "../strings";
import { placesOf } from "./Shell";

const [store, palette] = createSpotlight();
const MOST_FOUND = 12;

export function openPalette(): void {
  palette.open();
}

/** Everything by keyboard: screens, queues, nodes and settings, by a part of their name. */
export function Palette(): ReactNode {
  const navigate = useNavigate();
  const [text, setText] = useState("");
  const [wanted] = useDebouncedValue(text.trim(), 150);
  const queues = useQuery({
    queryKey: ["palette", wanted],
    queryFn: ({ signal }) => calls.queues({ search: wanted, limit: MOST_FOUND }, signal),
    enabled: wanted.length > 1,
    placeholderData: keepPreviousData,
  });
  // Also while a control has the focus, which a letter alone must not leave.
  useHotkeys([["mod+K", palette.open]], []);
  const session = useSession();
  const words = text.trim().toLowerCase();
  const screens: SpotlightActionData[] = placesOf(session)
    .filter((place) => place.name.toLowerCase().includes(words))
    .map((place) => ({
      id: place.to,
      label: place.name,
      onClick: () => void navigate({ to: place.to }),
    }));
  const settings: SpotlightActionData[] = [
    { id: "utc", label: strings.zone.toUtc, onClick: () => setZone("utc") },
    { id: "local", label: strings.zone.toLocal, onClick: () => setZone("local") },
  ].filter((one) => words !== "" && one.label.toLowerCase().includes(words));
  const found: SpotlightActionData[] = (wanted.length > 1 ? (queues.data?.queues ?? []) : []).map((queue) => ({
    id: `${queue.machine}/${queue.pathname}`,
    label: beginning(visible(queue.pathname), 90),
    description: beginning(visible(queue.label), 90),
    onClick: () =>
      void navigate({ to: "/queues/$machine/$queue", params: { machine: queue.machine, queue: queue.pathname } }),
  }));
  return (
    <Spotlight
      store={store}
      query={text}
      onQueryChange={setText}
      actions={[
        { group: strings.palette.screens, actions: screens },
        { group: strings.palette.queues, actions: found },
        { group: strings.palette.settings, actions: settings },
      ]}
      filter={(_, actions) => actions}
      shortcut="/"
      lockScroll={false}
      nothingFound={strings.palette.nothing}
      searchProps={{ placeholder: strings.palette.hint, "aria-label": strings.palette.hint }}
      highlightQuery={false}
      scrollable
      maxHeight={420}
    />
  );
}
