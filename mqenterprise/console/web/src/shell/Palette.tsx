import { useDebouncedValue, useHotkeys } from "@mantine/hooks";
import { createSpotlight, Spotlight, type SpotlightActionData } from "@mantine/spotlight";
import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { type KeyboardEvent, type ReactNode, useState } from "react";
import { calls } from "../api/calls";
import { useSession } from "../api/session";
import { setZone } from "../parts/preferences";
import { beginning, condition, visible } from "../parts/text";
import { go } from "../router";
import { strings } from "../strings";
import type { QueueRow } from "../api/types";
import { listName } from "../screens/queue/names";
import { placesOf } from "./Shell";

const [store, palette] = createSpotlight();
const MOST_FOUND = 12;

export function openPalette(): void {
  palette.open();
}

/** Everything by keyboard: screens, queues, nodes and the zone of times, by a part of their name. */
export function Palette(): ReactNode {
  const [text, setText] = useState("");
  const [wanted] = useDebouncedValue(text.trim(), 150);
  const client = useQueryClient();
  const asked = (search: string) => ({
    queryKey: ["palette", search],
    queryFn: ({ signal }: { signal: AbortSignal }) => calls.queues({ search, limit: MOST_FOUND }, signal),
  });
  const queues = useQuery({ ...asked(wanted), enabled: wanted.length > 1, placeholderData: keepPreviousData });
  const overview = useQuery({
    queryKey: ["overview"],
    queryFn: ({ signal }) => calls.overview(signal),
    enabled: wanted.length > 1,
  });
  // Also while a control has the focus, which a letter alone must not leave.
  useHotkeys([["mod+K", palette.open]], []);
  const session = useSession();
  const words = text.trim().toLowerCase();
  const open = (row: QueueRow) =>
    go({ to: "/queues/$machine/$queue", params: { machine: row.machine, queue: row.pathname } });
  const machines: SpotlightActionData[] = (overview.data?.nodes ?? [])
    .filter((one) => words.length > 1 && one.machine.toLowerCase().includes(words))
    .slice(0, MOST_FOUND)
    .map((one) => ({
      id: `machine ${one.machine}`,
      label: beginning(visible(one.machine), 90),
      description: [beginning(visible(one.site), 60), strings.state[one.state]].filter(Boolean).join(" · "),
      onClick: () => go({ to: "/nodes/$machine", params: { machine: one.machine } }),
    }));
  const screens: SpotlightActionData[] = placesOf(session)
    .filter((place) => place.name.toLowerCase().includes(words))
    .map((place) => ({
      id: place.to,
      label: place.name,
      onClick: () => go({ to: place.to }),
    }));
  const settings: SpotlightActionData[] = [
    { id: "utc", label: strings.zone.toUtc, onClick: () => setZone("utc") },
    { id: "local", label: strings.zone.toLocal, onClick: () => setZone("local") },
  ].filter((one) => words !== "" && one.label.toLowerCase().includes(words));
  const found: SpotlightActionData[] = byName(words.length > 1 ? (queues.data?.queues ?? []) : [], words).map(
    (queue) => ({
      id: `${queue.machine}/${queue.pathname}`,
      label: beginning(visible(listName(queue)), 90),
      description: beginning(visible([queue.machine, queue.label].filter(Boolean).join(" · ")), 90),
      onClick: () => open(queue),
    }),
  );
  const isSettled = wanted.toLowerCase() === words && !queues.isFetching;
  const isUnknown = isSettled && [screens, found, machines, settings].every((actions) => actions.length === 0);
  const messages: SpotlightActionData[] =
    words.length < 2 || !isUnknown
      ? []
      : [
          {
            id: "messages",
            label: strings.palette.searchMessages(beginning(visible(text.trim()), 60)),
            onClick: () => go({ to: "/search", search: { queue: "*", where: [condition(text)] } }),
          },
        ];
  // Enter goes to what the name says, also when it is pressed before the answer has come.
  const enter = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || words.length < 2 || event.nativeEvent.isComposing) return;
    if (isSettled && document.querySelector("[data-action][data-selected]")) return;
    event.preventDefault();
    event.stopPropagation();
    const place = screens.find((one) => one.label?.toLowerCase() === words) ?? machines[0];
    void client.fetchQuery({ ...asked(text.trim()), staleTime: 1000 }).then((page) => {
      const [row] = byName(page.queues, words);
      const isExact = row && listName(row).toLowerCase() === words;
      const action = isExact ? undefined : (place ?? (row ? undefined : screens[0]));
      if (!row && !action) return;
      palette.close();
      if (action) action.onClick?.(event as never);
      else if (row) open(row);
    });
  };
  return (
    <Spotlight
      store={store}
      query={text}
      onQueryChange={setText}
      actions={[
        { group: strings.palette.screens, actions: screens },
        { group: strings.palette.queues, actions: found },
        { group: strings.palette.machines, actions: machines },
        { group: strings.palette.settings, actions: settings },
        { group: strings.palette.messages, actions: messages },
      ]}
      filter={(_, actions) => actions}
      shortcut="/"
      lockScroll={false}
      nothingFound={strings.palette.nothing}
      searchProps={{ onKeyDownCapture: enter, placeholder: strings.palette.hint, "aria-label": strings.palette.hint }}
      highlightQuery={false}
      scrollable
      maxHeight={420}
    />
  );
}

/** Queues with exactly this name first. */
function byName(rows: readonly QueueRow[], words: string): readonly QueueRow[] {
  const rank = (row: QueueRow) => {
    const name = listName(row).toLowerCase();
    return name === words ? 0 : name.startsWith(words) ? 1 : 2;
  };
  const texts = (row: QueueRow) =>
    [row.pathname, row.label, row.machine, row.queue_type, listName(row)].join("\n").toLowerCase();
  return rows
    .filter((row) => words.split(/\s+/).every((word) => texts(row).includes(word)))
    .sort((one, other) => rank(one) - rank(other));
}
