"""Consumer groups: everything that a group of a stream is.

A :class:`~anabranch.stream.groups.group.Group` has its consumers and four parts. No part knows the
group or changes another part; what concerns several of them is a method of the group.

==================  =======================  =====================================================
part                module                   what it keeps, and what it may touch beside that
==================  =======================  =====================================================
``group.pending``   ``pending``              pending entries of this region, by replica ID, by age
                                             and by release; changes lists of consumers, too
``group.progress``  ``lone_progress`` or     what must still be delivered: one ID in a region
                    ``shared_progress``      alone, otherwise numbers; reads logs of the stream
``group.runs``      ``runs``                 what was delivered here and is not acknowledged in
                                             the eyes of other regions; reads logs and pending
                                             entries
``group.home``      ``home``                 in which region it is delivered, if it has moved, and
                                             this region's part in that; reads logs
==================  =======================  =====================================================

``progress`` is the face of both kinds of progress. ``pending_list`` has the list of one group or
consumer for one replica ID, ``pending_entry`` an entry of it, and ``frozen_pending`` such a list as
it was at one moment.
"""
