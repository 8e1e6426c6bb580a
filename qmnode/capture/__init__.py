"""Reading captures: files of frames, TCP streams, hex dumps, and the packets of Message Queuing in them.

===============  ===========================================================================
``errors``       the exception for unreadable captures
``containers``   pcap and pcapng files: frames with their times
``frames``       link, IP, TCP and UDP headers of one frame
``hexdump``      bytes from the text of a hex dump, in the styles that tools print
``streams``      TCP streams reassembled from segments, with bounded memory
``packetizer``   a stream of bytes cut into packets, with resynchronisation after damage
``source``       all of these in one: any file in, captured packets out
===============  ===========================================================================

Nothing here knows the fields of a packet beyond its BaseHeader; that is ``qmnode.structures``.

The readers of pcap and pcapng are our own, not dpkt's (1.9.8), for these reasons. dpkt supports only one interface and
one section of a pcapng file, and returns times as floats, which loses nanoseconds. It trusts a block's length before
reading the block, and fails with AttributeError on an IPv6 fragment header followed by destination options. The tests
use dpkt to make captures and to compare.
"""
