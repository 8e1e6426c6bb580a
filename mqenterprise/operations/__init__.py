"""Operations on the messages of many nodes: each node does the work, and authorises and audits the person who asked."""
