"""Show the enterprise in the terminal, and re-export the functions that draw it as a picture."""

from rich.table import Table as Grid
from rich.text import Text

from mqenterprise.topology.graph import Graph, LinkEdge, SiteNode, graph_of
from mqenterprise.topology.picture import layout, svg
from mqenterprise.topology.render import shown

__all__ = ["Graph", "LinkEdge", "SiteNode", "graph_of", "layout", "svg", "terminal"]


def terminal(graph: Graph) -> tuple[Grid, Grid]:
    """Return sites and links as tables."""
    sites = Grid("Site", "Machines", "Queues", "Routing servers", "Linked to (cost)", title="Sites")
    neighbours: dict[int, list[str]] = {}
    for link in graph.links:
        for here, there in ((link.first, link.second), (link.second, link.first)):
            neighbours.setdefault(here, []).append(f"{graph.sites[there].name} ({link.cost})")
    for index, site in enumerate(graph.sites):
        sites.add_row(
            Text(shown("", site.name) + (" (foreign)" if site.foreign else "")),
            str(site.machines),
            str(site.queues),
            Text(shown("", site.routing_servers)),
            Text(shown("", tuple(neighbours.get(index, ())))),
        )
    links = Grid("Between", "And", "Cost", "Site gates", "Description", title="Routing links")
    for link in graph.links:
        ends = (graph.sites[link.first].name, graph.sites[link.second].name)
        texts = (Text(shown("", text)) for text in (link.site_gates, link.description))
        links.add_row(*(Text(shown("", end)) for end in ends), str(link.cost), *texts)
    return sites, links
