//! Plugins, the App and dora's event loop.
