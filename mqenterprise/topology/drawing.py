"""Sites and links of the enterprise as the rows of tables, and re-export the functions that draw them as a picture."""

from mqenterprise.topology.graph import Graph, LinkEdge, SiteNode, graph_of
from mqenterprise.topology.picture import layout, svg

__all__ = ["Graph", "LinkEdge", "SiteNode", "graph_of", "layout", "link_rows", "site_rows", "svg"]


def site_rows(graph: Graph) -> list[dict[str, object]]:
    """Return the sites, each with what it has and with the sites that it is linked to."""
    neighbours: dict[int, list[str]] = {}
    for link in graph.links:
        for here, there in ((link.first, link.second), (link.second, link.first)):
            neighbours.setdefault(here, []).append(f"{graph.sites[there].name} ({link.cost})")
    return [
        {
            "site": site.name + (" (foreign)" if site.foreign else ""),
            "machines": site.machines,
            "queues": site.queues,
            "routing servers": site.routing_servers,
            "linked to (cost)": neighbours.get(index, []),
        }
        for index, site in enumerate(graph.sites)
    ]


def link_rows(graph: Graph) -> list[dict[str, object]]:
    """Return the routing links, each with its ends."""
    return [
        {
            "routing link between": graph.sites[link.first].name,
            "and": graph.sites[link.second].name,
            "cost": link.cost,
            "site gates": link.site_gates,
            "description": link.description,
        }
        for link in graph.links
    ]
