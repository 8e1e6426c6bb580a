import "./mantine.css";
import "./style.css";
import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { ApiError } from "./api/client";
import { Router } from "./router";
import { Entrance } from "./shell/Entrance";

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      // A refusal stays one; what could not be reached is asked again by the next refresh.
      retry: (times, error) => times < 1 && error instanceof ApiError && error.status === 0,
      refetchOnWindowFocus: true,
      staleTime: 1000,
    },
  },
});

const place = document.getElementById("root");
if (place) {
  // A screen that cannot be shown says so in its place.
  createRoot(place, { onCaughtError: () => undefined }).render(
    <StrictMode>
      {/* All styles are in files: the policy allows no style that is made while the page runs. */}
      <MantineProvider defaultColorScheme="auto" withCssVariables={false} withGlobalClasses={false}>
        <QueryClientProvider client={queries}>
          <Entrance>
            <Router />
          </Entrance>
        </QueryClientProvider>
      </MantineProvider>
    </StrictMode>,
  );
}
