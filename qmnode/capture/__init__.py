"""Reading captures: files of frames, TCP streams, hex dumps, and the packets of Message Queuing in them.

===============  ===========================================================================
``errors``       the one exception of this room
``containers``   pcap and pcapng files: frames with their times
``frames``       link, IP, TCP and UDP headers of one frame
``hexdump``      bytes from the text of a hex dump, in the styles that tools print
``streams``      TCP streams put together from segments, with bounded memory
``packetizer``   a stream of bytes cut into packets, and back in step after damage
``source``       all of these in one: any file in, captured packets out
===============  ===========================================================================

Nothing here knows the fields of a packet beyond its BaseHeader; that is ``qmnode.structures``.

The readers of pcap and pcapng are our own, and not dpkt's (1.9.8), for these reasons: dpkt knows one interface and one
section of a pcapng file only, gives times as floats (a nanosecond is lost), takes a block's length on trust before it
reads it, and ends with AttributeError on an IPv6 fragment header followed by destination options. The tests use dpkt to
make captures and to compare.
"""
