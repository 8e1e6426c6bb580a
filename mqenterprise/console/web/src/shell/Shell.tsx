import { ActionIcon, Drawer, Menu, useComputedColorScheme, useMantineColorScheme } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { type ReactNode, useEffect, useRef } from "react";
import { useSession, useSignOut } from "../api/session";
import type { Role, Session } from "../api/types";
import { setZone, useZone } from "../parts/preferences";
import { Foreign } from "../parts/Texts";
import { Link, type Simple, usePath } from "../router";
import { strings } from "../strings";
import { Icon, type IconName } from "./icons";
import { openPalette, Palette } from "./Palette";

interface Place {
  readonly to: Simple;
  readonly name: string;
  readonly icon: IconName;
  /** What the server must be able to do for this screen to be of use. */
  readonly needs?: string;
  /** The role without which every node refuses it. */
  readonly role?: Role;
}

const PLACES: readonly Place[] = [
  { to: "/", name: strings.nav.map, icon: "map" },
  { to: "/queues", name: strings.nav.queues, icon: "queues" },
  { to: "/search", name: strings.nav.search, icon: "search" },
  { to: "/failures", name: strings.nav.failures, icon: "failures" },
  { to: "/waiting", name: strings.nav.waiting, icon: "clock" },
  { to: "/life", name: strings.nav.life, icon: "message" },
  { to: "/routes", name: strings.nav.routes, icon: "routes", needs: "routes" },
  { to: "/keys", name: strings.nav.keys, icon: "keys" },
  { to: "/plan", name: strings.nav.plan, icon: "plan", needs: "plan" },
  { to: "/moving", name: strings.nav.moving, icon: "right", needs: "moving" },
  { to: "/jobs", name: strings.nav.jobs, icon: "jobs" },
  { to: "/audit", name: strings.nav.audit, icon: "audit", needs: "audit", role: "administer" },
];

export function Shell({ children }: { children: ReactNode }): ReactNode {
  const main = useRef<HTMLElement>(null);
  const [menu, { open, close }] = useDisclosure(false);
  const path = usePath();
  const before = useRef(path);
  useEffect(() => {
    // A new screen is read from its beginning, by eyes and by screen readers.
    if (before.current === path) return;
    before.current = path;
    main.current?.scrollTo(0, 0);
    main.current?.focus({ preventScroll: true });
    close();
  }, [path, close]);
  return (
    <>
      <button type="button" className="skip" onClick={() => main.current?.focus()}>
        {strings.skip}
      </button>
      <div className="shell">
        <Top onMenu={open} />
        <nav className="side" aria-label={strings.nav.label}>
          <Navigation />
        </nav>
        <main className="page" ref={main} tabIndex={-1}>
          {children}
        </main>
      </div>
      <Drawer
        opened={menu}
        onClose={close}
        title={strings.product}
        size={280}
        lockScroll={false}
        closeButtonProps={{ "aria-label": strings.close }}
      >
        <nav aria-label={strings.nav.label} className="drawer-nav">
          <Navigation />
        </nav>
      </Drawer>
      <Palette />
    </>
  );
}

/** The screens that are of use to a person. */
export function placesOf(session: Session): readonly Place[] {
  const places = PLACES.filter(
    ({ needs, role }) =>
      (needs === undefined || session.features.includes(needs)) && (role === undefined || session.roles.includes(role)),
  );
  if (session.features.includes("map")) return places;
  return places.map((place) => (place.to === "/" ? { ...place, name: strings.nav.node } : place));
}

function Navigation(): ReactNode {
  const places = placesOf(useSession());
  const path = usePath();
  const isAt = (to: string) => path === to || (to !== "/" && path.startsWith(`${to}/`));
  return (
    <ul className="list-plain">
      {places.map((place) => (
        <li key={place.to}>
          <Link to={place.to} className="nav-link" aria-current={isAt(place.to) ? "page" : undefined}>
            <Icon name={place.icon} />
            {place.name}
          </Link>
        </li>
      ))}
    </ul>
  );
}

function Top({ onMenu }: { onMenu: () => void }): ReactNode {
  const session = useSession();
  const signOut = useSignOut();
  const zone = useZone();
  const scheme = useComputedColorScheme("light");
  const { setColorScheme } = useMantineColorScheme({ keepTransitions: true }); // else it adds a style, which the policy forbids
  return (
    <header className="top">
      <ActionIcon
        variant="subtle"
        color="gray"
        size="lg"
        className="only-narrow"
        aria-label={strings.nav.open}
        onClick={onMenu}
      >
        <Icon name="menu" />
      </ActionIcon>
      <Link to="/" className="name" aria-label={strings.nav.start}>
        <img src="./icon.svg" alt="" width={26} height={26} />
        <span>
          <Foreign text={session.enterprise || strings.product} most={40} />
        </span>
      </Link>
      <span className="space" />
      <button
        type="button"
        className="palette-button"
        onClick={openPalette}
        aria-label={strings.palette.open}
        aria-keyshortcuts="Control+K"
      >
        <Icon name="search" size={18} />
        <span>{strings.palette.short}</span>
        <kbd>Ctrl K</kbd>
      </button>
      <ActionIcon
        variant="subtle"
        color="gray"
        size="lg"
        aria-label={zone === "utc" ? strings.zone.toLocal : strings.zone.toUtc}
        title={zone === "utc" ? strings.zone.toLocal : strings.zone.toUtc}
        onClick={() => setZone(zone === "utc" ? "local" : "utc")}
      >
        <span className="zone">{zone === "utc" ? "UTC" : strings.zone.local}</span>
      </ActionIcon>
      <ActionIcon
        variant="subtle"
        color="gray"
        size="lg"
        aria-label={scheme === "dark" ? strings.scheme.light : strings.scheme.dark}
        onClick={() => setColorScheme(scheme === "dark" ? "light" : "dark")}
      >
        <Icon name={scheme === "dark" ? "sun" : "moon"} />
      </ActionIcon>
      <Menu position="bottom-end" withinPortal>
        <Menu.Target>
          <ActionIcon variant="subtle" color="gray" size="lg" aria-label={strings.person.menu(session.name)}>
            <Icon name="person" />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.Label>
            <Foreign text={session.name} most={60} />
            <br />
            {strings.person.role(session.roles.join(", "))}
          </Menu.Label>
          <Menu.Item onClick={() => signOut(false)}>{strings.person.signOut}</Menu.Item>
          <Menu.Item onClick={() => signOut(true)}>{strings.person.signOutEverywhere}</Menu.Item>
        </Menu.Dropdown>
      </Menu>
    </header>
  );
}
