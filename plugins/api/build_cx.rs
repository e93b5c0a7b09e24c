//! What a plugin may reach while it is built.

use std::any::{Any, TypeId};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustc_hash::FxHashMap;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The surroundings of one plugin instance at build time.
pub struct BuildCx<'a> {
    /// The resource that holds the configuration, such as `routes/3`.
    pub owner: &'a str,
    /// The plugin's name.
    pub plugin: &'static str,
    /// The process-wide objects.
    pub shared: &'a Shared,
    /// State that outlives configurations.
    pub states: &'a StateStore,
    /// `plugin_attr.NAME` of the process settings, `Null` when absent.
    pub attr: &'a Value,
    /// The plugin's `plugin_metadata`, `Null` when absent.
    pub metadata: &'a Value,
}

impl BuildCx<'_> {
    /// State that survives an edit of the configuration: the same object for the same owner,
    /// plugin and key while anyone uses it, freed with its last user. Keep measurements in it,
    /// never settings.
    pub fn state<T: Any + Send + Sync>(&self, key: &str, init: impl FnOnce() -> T) -> Arc<T> {
        self.states.get((self.owner, self.plugin, key), init)
    }

    /// The plugin's metadata, typed; `None` when there is none. It was checked before.
    pub fn metadata<T: DeserializeOwned>(&self) -> Option<T> {
        if self.metadata.is_null() {
            None
        } else {
            T::deserialize(self.metadata).ok()
        }
    }

    /// A process-wide object, if the gateway provides one of this type.
    pub fn shared<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.shared.get()
    }
}

/// Process-wide objects by type: metrics, clients. Filled once at start.
#[derive(Default)]
pub struct Shared {
    objects: FxHashMap<TypeId, Arc<dyn Any + Send + Sync>>,
}

impl Shared {
    /// Adds an object; a second one of the same type replaces the first.
    pub fn insert<T: Any + Send + Sync>(&mut self, object: Arc<T>) {
        self.objects.insert(TypeId::of::<T>(), object);
    }

    /// The object of this type.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        Arc::clone(self.objects.get(&TypeId::of::<T>())?)
            .downcast()
            .ok()
    }
}

type StateKey = (Box<str>, Box<str>, Box<str>, TypeId);

/// State keyed by owner, plugin and key, held weakly: its last user's drop frees it. A new
/// instance is built before the old one retires, so an edit never loses counters in between.
#[derive(Default)]
pub struct StateStore {
    states: Mutex<FxHashMap<StateKey, Weak<dyn Any + Send + Sync>>>,
}

impl StateStore {
    /// Dead entries are swept when the table has grown by this many since the last sweep.
    const SWEEP_EVERY: usize = 1024;

    /// The state for a key, made by `init` when nobody uses one.
    pub fn get<T: Any + Send + Sync>(
        &self,
        (owner, plugin, key): (&str, &str, &str),
        init: impl FnOnce() -> T,
    ) -> Arc<T> {
        let key = (owner.into(), plugin.into(), key.into(), TypeId::of::<T>());
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let live = states.get(&key).and_then(Weak::upgrade);
        if let Some(Ok(found)) = live.map(Arc::downcast::<T>) {
            return found;
        }
        if states.len() % Self::SWEEP_EVERY == Self::SWEEP_EVERY - 1 {
            states.retain(|_, state| state.strong_count() > 0);
        }
        let made = Arc::new(init());
        let weak: Weak<dyn Any + Send + Sync> = Arc::downgrade(&made) as _;
        states.insert(key, weak);
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_lives_as_long_as_its_users() {
        let store = StateStore::default();
        let a = store.get(("routes/1", "limit", "k"), || 1u32);
        assert_eq!(*store.get(("routes/1", "limit", "k"), || 2u32), 1);
        assert_eq!(*store.get(("routes/2", "limit", "k"), || 3u32), 3);
        drop(a);
        assert_eq!(*store.get(("routes/1", "limit", "k"), || 4u32), 4);
    }
}
