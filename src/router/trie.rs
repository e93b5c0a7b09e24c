//! A persistent radix trie over bytes.
//!
//! Every node has two slots: one for the key that ends there, one for all keys that continue from
//! there. Nodes are shared between clones; an edit copies the nodes on its way (`Arc::make_mut`),
//! or changes them in place when nobody else holds them.
//!
//! The shape depends on the content only: every node but the root has a filled slot or at least
//! two children, so a removal undoes an insertion exactly.

use std::sync::Arc;

use smallvec::SmallVec;

/// Label bytes kept inside a node. Most labels of a filled router are shorter; a longer one costs
/// an allocation and a cache miss.
const LABEL_INLINE: usize = 16;

/// Children kept inside a node: forks are mostly binary.
const CHILDREN_INLINE: usize = 2;

/// First bytes of children kept inside a node: all digits, or as much as fits without growing it.
const BYTES_INLINE: usize = 16;

/// Which slot of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The key itself.
    Exact,
    /// Everything that starts with the key.
    Prefix,
}

/// What a node holds for a key.
pub(super) trait Slot: Clone + Default {
    /// Whether it stands for nothing.
    fn is_vacant(&self) -> bool;
}

/// Prefix slots on the way to a key, shortest first. Nested prefixes beyond the inline size are
/// rare and cost one allocation.
pub(super) type Prefixes<'t, S> = SmallVec<[&'t S; 8]>;

/// See the module.
#[derive(Debug)]
pub(super) struct Trie<S> {
    root: Arc<Node<S>>,
}

impl<S> Clone for Trie<S> {
    fn clone(&self) -> Self {
        Trie {
            root: Arc::clone(&self.root),
        }
    }
}

impl<S: Slot> Default for Trie<S> {
    fn default() -> Self {
        Trie {
            root: Arc::default(),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Node<S> {
    /// The first byte of each child's label, ascending; kept here so that a lookup touches only
    /// the child that it goes to.
    bytes: SmallVec<[u8; BYTES_INLINE]>,
    children: SmallVec<[Arc<Node<S>>; CHILDREN_INLINE]>,
    /// Bytes between the parent and this node; empty only at the root.
    label: SmallVec<[u8; LABEL_INLINE]>,
    exact: S,
    prefix: S,
}

impl<S: Slot> Trie<S> {
    /// Whether nothing is in it.
    pub(super) fn is_empty(&self) -> bool {
        self.root.is_vacant() && self.root.children.is_empty()
    }

    /// The exact slot of a key, if filled; the filled prefix slots on the way are pushed.
    #[inline]
    pub(super) fn lookup<'t>(
        &'t self,
        key: &[u8],
        prefixes: &mut Prefixes<'t, S>,
    ) -> Option<&'t S> {
        let mut node = &*self.root;
        let mut rest = key;
        loop {
            if !node.prefix.is_vacant() {
                prefixes.push(&node.prefix);
            }
            let Some(first) = rest.first() else {
                return Some(&node.exact).filter(|exact| !exact.is_vacant());
            };
            let at = node.bytes.iter().position(|byte| byte == first)?;
            node = &node.children[at];
            rest = rest.strip_prefix(&*node.label)?;
        }
    }

    /// The slot of a key, if the key has a node.
    pub(super) fn get(&self, key: &[u8], kind: Kind) -> Option<&S> {
        let mut node = &*self.root;
        let mut rest = key;
        while let Some(first) = rest.first() {
            node = &node.children[node.child(*first).ok()?];
            rest = rest.strip_prefix(&*node.label)?;
        }
        Some(node.slot(kind))
    }

    /// Changes the slot of a key, with its node made before and removed after where needed.
    pub(super) fn edit(&mut self, key: &[u8], kind: Kind, change: impl FnOnce(&mut S)) {
        let node = self.make(key);
        let slot = node.slot_mut(kind);
        change(slot);
        if node.is_vacant() {
            self.prune(key);
        }
    }

    /// The node of a key, made if there is none.
    fn make(&mut self, key: &[u8]) -> &mut Node<S> {
        let mut node = Arc::make_mut(&mut self.root);
        let mut rest = key;
        while let Some(&first) = rest.first() {
            let at = match node.child(first) {
                Ok(at) => at,
                Err(at) => {
                    let mut leaf = Node::default();
                    leaf.label.extend_from_slice(rest);
                    node.adopt(at, first, leaf);
                    return Arc::make_mut(&mut node.children[at]);
                }
            };
            node = Arc::make_mut(&mut node.children[at]);
            let shared = node
                .label
                .iter()
                .zip(rest)
                .take_while(|(a, b)| a == b)
                .count();
            if shared < node.label.len() {
                node.split(shared);
            }
            rest = &rest[shared..];
        }
        node
    }

    /// Restores the shape after the node of `key` has become vacant.
    fn prune(&mut self, key: &[u8]) {
        let mut parent = Arc::make_mut(&mut self.root);
        let mut rest = key;
        let mut at_root = true;
        while let Some(&first) = rest.first() {
            let Ok(at) = parent.child(first) else { return };
            let len = parent.children[at].label.len();
            if len < rest.len() {
                parent = Arc::make_mut(&mut parent.children[at]);
                rest = &rest[len..];
                at_root = false;
                continue;
            }
            let node = Arc::make_mut(&mut parent.children[at]);
            match node.children.len() {
                0 => {
                    parent.bytes.remove(at);
                    parent.children.remove(at);
                    if !at_root && parent.is_vacant() && parent.children.len() == 1 {
                        parent.absorb();
                    }
                }
                1 => node.absorb(),
                _ => {}
            }
            return;
        }
    }

    /// Calls `f` for every node with a filled slot, in the order of keys.
    pub(super) fn visit<'t>(&'t self, mut f: impl FnMut(&Visit<'t, '_, S>)) {
        let mut key = Vec::new();
        let mut forks = Vec::new();
        let mut todo = vec![(&*self.root, 0, 0)];
        while let Some((node, key_len, fork_len)) = todo.pop() {
            key.truncate(key_len);
            forks.truncate(fork_len);
            key.extend_from_slice(&node.label);
            forks.push(key.len());
            if !node.is_vacant() {
                f(&Visit {
                    node,
                    key: &key,
                    forks: &forks,
                });
            }
            let below = node.children.iter().rev();
            todo.extend(below.map(|child| (&**child, key.len(), forks.len())));
        }
    }
}

/// A node met by [`Trie::visit`].
pub(super) struct Visit<'t, 'k, S> {
    node: &'t Node<S>,
    key: &'k [u8],
    forks: &'k [usize],
}

impl<'t, S> Visit<'t, '_, S> {
    /// The exact and the prefix slot; either may be vacant.
    pub(super) fn slots(&self) -> [&'t S; 2] {
        [&self.node.exact, &self.node.prefix]
    }

    /// The key, with a bar wherever a node ends.
    pub(super) fn shape(&self) -> String {
        let mut shape = String::new();
        let mut start = 0;
        for &end in self.forks.iter().skip(1) {
            shape.push_str(&String::from_utf8_lossy(&self.key[start..end]));
            shape.push('|');
            start = end;
        }
        shape
    }
}

impl<S: Slot> Node<S> {
    fn is_vacant(&self) -> bool {
        self.exact.is_vacant() && self.prefix.is_vacant()
    }

    fn slot(&self, kind: Kind) -> &S {
        match kind {
            Kind::Exact => &self.exact,
            Kind::Prefix => &self.prefix,
        }
    }

    fn slot_mut(&mut self, kind: Kind) -> &mut S {
        match kind {
            Kind::Exact => &mut self.exact,
            Kind::Prefix => &mut self.prefix,
        }
    }

    /// Where the child for a byte is, or belongs.
    fn child(&self, first: u8) -> Result<usize, usize> {
        self.bytes.binary_search(&first)
    }

    fn adopt(&mut self, at: usize, first: u8, child: Node<S>) {
        self.bytes.insert(at, first);
        self.children.insert(at, Arc::new(child));
    }

    /// Becomes two nodes: this one keeps the first `at` bytes of the label and gets one child
    /// with everything else. `at` is below the label's length.
    fn split(&mut self, at: usize) {
        let head = SmallVec::from_slice(&self.label[..at]);
        let first = self.label[at];
        let mut lower = std::mem::take(self);
        lower.label.drain(..at);
        self.label = head;
        self.adopt(0, first, lower);
    }

    /// Becomes one node with its only child. The node is vacant.
    fn absorb(&mut self) {
        let Some(only) = self.children.pop() else {
            return;
        };
        let mut only = Arc::unwrap_or_clone(only);
        only.label.insert_from_slice(0, &self.label);
        *self = only;
    }
}

impl<S> Drop for Node<S> {
    /// Frees the nodes below in a loop: a trie can be as deep as a path is long, and recursion
    /// would have no better bound than that.
    fn drop(&mut self) {
        let mut todo = std::mem::take(&mut self.children);
        while let Some(child) = todo.pop() {
            if let Some(mut child) = Arc::into_inner(child) {
                todo.append(&mut child.children);
            }
        }
    }
}
