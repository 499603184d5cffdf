"""Publish/subscribe: SUBSCRIBE, PUBLISH, PUBSUB."""
