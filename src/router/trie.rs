//! A persistent radix trie over bytes, which ends in small hashed tables.
//!
//! For every key there are two slots: one for the key itself, one for all keys that continue from
//! there. Nodes are shared between clones; an edit copies the nodes on its way (`Arc::make_mut`),
//! or changes them in place when nobody else holds them.
//!
//! The shape depends on the content only, so a removal undoes an insertion exactly: of a node with
//! at most [`IN_LEAF`] filled slots below it, all are in one [`Leaf`]; one with more forks at the
//! first byte in which its keys differ.

use std::sync::Arc;

use smallvec::SmallVec;

use super::leaf::{self, Leaf, Record, shared};

/// Most filled slots of a leaf. Few in tests: what a dozen routes make should have forks too.
const IN_LEAF: usize = if cfg!(any(test, fuzzing)) {
    3
} else {
    leaf::MOST
};

/// Label bytes kept inside a node. Most labels of a filled router are shorter; a longer one costs
/// an allocation and a cache miss.
const LABEL_INLINE: usize = 16;

/// Children kept inside a node: many forks are binary.
const CHILDREN_INLINE: usize = 2;

/// First bytes of children kept inside a node: all digits, or as much as fits without growing it.
const BYTES_INLINE: usize = 16;

/// Which slot of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The key itself.
    Exact,
    /// Everything that starts with the key.
    Prefix,
}

/// What there is for a key.
pub(super) trait Slot: Clone + Default {
    /// Whether it stands for nothing.
    fn is_vacant(&self) -> bool;
}

/// Prefix slots on the way to a key, shortest first. Nested prefixes beyond the inline size are
/// rare and cost one allocation.
pub(super) type Prefixes<'t, S> = SmallVec<[&'t S; 8]>;

type Label = SmallVec<[u8; LABEL_INLINE]>;

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

#[derive(Clone, Debug)]
struct Node<S> {
    /// Bytes between the parent and this node: what all keys here begin with.
    label: Label,
    below: Below<S>,
}

#[derive(Clone, Debug)]
enum Below<S> {
    Leaf(Leaf<S>),
    Fork(Fork<S>),
}

#[derive(Clone, Debug)]
struct Fork<S> {
    /// The first byte of each child's label, ascending; kept here so that a lookup touches only
    /// the child that it goes to.
    bytes: SmallVec<[u8; BYTES_INLINE]>,
    children: SmallVec<[Arc<Node<S>>; CHILDREN_INLINE]>,
    /// Filled slots, here and below.
    count: usize,
    exact: S,
    prefix: S,
}

impl<S: Slot> Trie<S> {
    /// Whether nothing is in it.
    pub(super) fn is_empty(&self) -> bool {
        self.root.count() == 0
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
            rest = rest.strip_prefix(&*node.label)?;
            let fork = match &node.below {
                Below::Leaf(leaf) => return leaf.lookup(rest, prefixes),
                Below::Fork(fork) => fork,
            };
            if !fork.prefix.is_vacant() {
                prefixes.push(&fork.prefix);
            }
            let Some(first) = rest.first() else {
                return Some(&fork.exact).filter(|exact| !exact.is_vacant());
            };
            let at = fork.bytes.iter().position(|byte| byte == first)?;
            node = &fork.children[at];
        }
    }

    /// The slot of a key, if filled.
    pub(super) fn get(&self, key: &[u8], kind: Kind) -> Option<&S> {
        let mut node = &*self.root;
        let mut rest = key;
        loop {
            rest = rest.strip_prefix(&*node.label)?;
            let fork = match &node.below {
                Below::Leaf(leaf) => return leaf.get(rest, kind),
                Below::Fork(fork) => fork,
            };
            let Some(first) = rest.first() else {
                return Some(fork.slot(kind)).filter(|slot| !slot.is_vacant());
            };
            node = &fork.children[fork.child(*first).ok()?];
        }
    }

    /// Changes the slot of a key, which is vacant when the key is not there.
    pub(super) fn edit(&mut self, key: &[u8], kind: Kind, change: impl FnOnce(&mut S)) {
        if self.get(key, kind).is_none() {
            let mut slot = S::default();
            change(&mut slot);
            if !slot.is_vacant() {
                self.insert(key, kind, slot);
            }
        } else if let Some(slot) = self.get_mut(key, kind) {
            change(slot);
            if slot.is_vacant() {
                self.remove(key, kind);
            }
        }
    }

    fn get_mut(&mut self, key: &[u8], kind: Kind) -> Option<&mut S> {
        let mut node = Arc::make_mut(&mut self.root);
        let mut rest = key;
        loop {
            rest = rest.strip_prefix(&*node.label)?;
            let fork = match &mut node.below {
                Below::Leaf(leaf) => return leaf.get_mut(rest, kind),
                Below::Fork(fork) => fork,
            };
            let Some(first) = rest.first() else {
                return Some(fork.slot_mut(kind));
            };
            let at = fork.child(*first).ok()?;
            node = Arc::make_mut(&mut fork.children[at]);
        }
    }

    /// Fills a slot that is vacant.
    fn insert(&mut self, key: &[u8], kind: Kind, slot: S) {
        let mut node = Arc::make_mut(&mut self.root);
        let mut rest = key;
        loop {
            if node.count() == 0 {
                *node = Node::alone(rest, kind, slot);
                return;
            }
            let same = shared(&node.label, rest);
            if same < node.label.len() {
                node.split(same);
            }
            rest = &rest[same..];
            node.burst_if_full();
            let fork = match &mut node.below {
                Below::Leaf(leaf) => return leaf.insert(Record::new(b"", rest, kind, slot)),
                Below::Fork(fork) => fork,
            };
            fork.count += 1;
            let Some(&first) = rest.first() else {
                *fork.slot_mut(kind) = slot;
                return;
            };
            match fork.child(first) {
                Ok(at) => node = Arc::make_mut(&mut fork.children[at]),
                Err(at) => return fork.adopt(at, first, Node::alone(rest, kind, slot)),
            }
        }
    }

    /// Restores the shape after the slot of a key has become vacant.
    fn remove(&mut self, key: &[u8], kind: Kind) {
        let mut node = Arc::make_mut(&mut self.root);
        let mut rest = key;
        loop {
            rest = &rest[node.label.len()..];
            let fork = match &mut node.below {
                Below::Leaf(leaf) => {
                    leaf.remove(rest, kind);
                    return node.settle();
                }
                Below::Fork(fork) => fork,
            };
            fork.count -= 1;
            if fork.count <= IN_LEAF {
                return node.collapse();
            }
            let Some(first) = rest.first() else {
                return node.absorb();
            };
            let Ok(at) = fork.child(*first) else { return };
            if fork.children[at].count() == 1 {
                fork.bytes.remove(at);
                fork.children.remove(at);
                return node.absorb();
            }
            node = match &mut node.below {
                Below::Fork(fork) => Arc::make_mut(&mut fork.children[at]),
                Below::Leaf(_) => return,
            };
        }
    }

    /// Calls `f` for every key with a filled slot, in their order.
    pub(super) fn visit<'t>(&'t self, mut f: impl FnMut(&Visit<'t, '_, S>)) {
        let mut key = Vec::new();
        let mut forks = Vec::new();
        let mut todo = vec![(&*self.root, 0, 0)];
        while let Some((node, key_len, fork_len)) = todo.pop() {
            key.truncate(key_len);
            forks.truncate(fork_len);
            key.extend_from_slice(&node.label);
            forks.push(key.len());
            match &node.below {
                Below::Fork(fork) => {
                    if !fork.is_vacant() {
                        f(&Visit {
                            slots: [&fork.exact, &fork.prefix].map(Some),
                            key: &key,
                            forks: &forks,
                        });
                    }
                    let below = fork.children.iter().rev();
                    todo.extend(below.map(|child| (&**child, key.len(), forks.len())));
                }
                Below::Leaf(leaf) => {
                    let start = key.len();
                    for same in leaf.records().chunk_by(|a, b| a.text() == b.text()) {
                        key.truncate(start);
                        key.extend_from_slice(same[0].text());
                        let slot = |kind| same.iter().find(|r| r.kind() == kind).map(Record::slot);
                        f(&Visit {
                            slots: [slot(Kind::Exact), slot(Kind::Prefix)],
                            key: &key,
                            forks: &forks,
                        });
                    }
                }
            }
        }
    }
}

/// A key met by [`Trie::visit`].
pub(super) struct Visit<'t, 'k, S> {
    slots: [Option<&'t S>; 2],
    key: &'k [u8],
    forks: &'k [usize],
}

impl<'t, S> Visit<'t, '_, S> {
    /// The exact and the prefix slot; one of them may be vacant or missing.
    pub(super) fn slots(&self) -> [Option<&'t S>; 2] {
        self.slots
    }

    /// The key, with a bar wherever a node ends.
    pub(super) fn shape(&self) -> String {
        let mut shape = String::new();
        let mut start = 0;
        for &end in self.forks {
            shape.push_str(&String::from_utf8_lossy(&self.key[start..end]));
            shape.push('|');
            start = end;
        }
        shape + &String::from_utf8_lossy(&self.key[start..])
    }
}

impl<S> Default for Node<S> {
    fn default() -> Self {
        Node {
            label: Label::new(),
            below: Below::Leaf(Leaf::default()),
        }
    }
}

impl<S: Slot> Node<S> {
    /// A node with one key.
    fn alone(key: &[u8], kind: Kind, slot: S) -> Node<S> {
        Node {
            label: Label::from_slice(key),
            below: Below::Leaf(Leaf::of(vec![Record::new(b"", b"", kind, slot)])),
        }
    }

    /// Filled slots.
    fn count(&self) -> usize {
        match &self.below {
            Below::Leaf(leaf) => leaf.records().len(),
            Below::Fork(fork) => fork.count,
        }
    }

    /// Keeps the first `at` bytes of the label, fewer than it has: a leaf with room takes the others
    /// into its keys; anything else becomes the only child of a fork, which gets another at once.
    fn split(&mut self, at: usize) {
        let mut label = std::mem::take(&mut self.label);
        let rest = Label::from_slice(&label[at..]);
        label.truncate(at);
        let mut old = std::mem::take(self);
        self.label = label;
        self.below = match old.below {
            Below::Leaf(leaf) if leaf.records().len() < IN_LEAF => {
                let records = leaf.into_records().into_iter();
                Below::Leaf(Leaf::of(records.map(|r| r.moved(&rest, 0)).collect()))
            }
            below => {
                let first = rest[0];
                (old.label, old.below) = (rest, below);
                let mut fork = Fork::new(old.count());
                fork.adopt(0, first, old);
                Below::Fork(fork)
            }
        };
    }

    /// Makes a fork of a leaf that has no room for one more key.
    fn burst_if_full(&mut self) {
        let Below::Leaf(leaf) = &mut self.below else {
            return;
        };
        if leaf.records().len() < IN_LEAF {
            return;
        }
        let mut fork = Fork::new(leaf.records().len());
        let mut records = std::mem::take(leaf).into_records().into_iter().peekable();
        // In the order of their keys: those with the same first byte are side by side.
        while let Some(record) = records.next() {
            let Some(&first) = record.text().first() else {
                let slot = fork.slot_mut(record.kind());
                *slot = record.into_slot();
                continue;
            };
            let mut group = vec![record];
            while let Some(same) = records.next_if(|r| r.text().first() == Some(&first)) {
                group.push(same);
            }
            fork.adopt(fork.bytes.len(), first, Node::of(group));
        }
        self.below = Below::Fork(fork);
    }

    /// A leaf of these records.
    fn of(records: Vec<Record<S>>) -> Node<S> {
        let mut node = Node {
            label: Label::new(),
            below: Below::Leaf(Leaf::of(records)),
        };
        node.settle();
        node
    }

    /// Moves what all keys of a leaf begin with into the label.
    fn settle(&mut self) {
        let Below::Leaf(leaf) = &mut self.below else {
            return;
        };
        let same = leaf.shared();
        if let Some(first) = leaf.records().first()
            && same > 0
        {
            self.label.extend_from_slice(&first.text()[..same]);
            let records = std::mem::take(leaf).into_records().into_iter();
            *leaf = Leaf::of(records.map(|r| r.moved(b"", same)).collect());
        } else if leaf.records().is_empty() {
            self.label.clear();
        }
    }

    /// Makes one leaf of everything below.
    fn collapse(&mut self) {
        let mut records = Vec::new();
        let mut todo = vec![(Vec::new(), std::mem::take(self))];
        while let Some((mut key, mut node)) = todo.pop() {
            key.extend_from_slice(&node.label);
            match &mut node.below {
                Below::Leaf(leaf) => {
                    let below = std::mem::take(leaf).into_records().into_iter();
                    let filled = below.filter(|record| !record.slot().is_vacant());
                    records.extend(filled.map(|record| record.moved(&key, 0)));
                }
                Below::Fork(fork) => {
                    for kind in [Kind::Exact, Kind::Prefix] {
                        let slot = std::mem::take(fork.slot_mut(kind));
                        if !slot.is_vacant() {
                            records.push(Record::new(b"", &key, kind, slot));
                        }
                    }
                    let below = std::mem::take(&mut fork.children).into_iter();
                    todo.extend(below.map(|child| (key.clone(), Arc::unwrap_or_clone(child))));
                }
            }
        }
        *self = Node::of(records);
    }

    /// Becomes one node with its only child, if the fork holds nothing else.
    fn absorb(&mut self) {
        let Below::Fork(fork) = &mut self.below else {
            return;
        };
        if fork.children.len() > 1 || !fork.is_vacant() {
            return;
        }
        if let Some(only) = fork.children.pop() {
            let mut only = Arc::unwrap_or_clone(only);
            only.label.insert_from_slice(0, &self.label);
            *self = only;
        }
    }
}

impl<S: Slot> Fork<S> {
    /// An empty one that is going to hold as many slots.
    fn new(count: usize) -> Fork<S> {
        Fork {
            bytes: SmallVec::new(),
            children: SmallVec::new(),
            count,
            exact: S::default(),
            prefix: S::default(),
        }
    }

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
}

impl<S> Drop for Fork<S> {
    /// Frees the nodes below in a loop: a trie can be as deep as a path is long, and recursion
    /// would have no better bound than that.
    fn drop(&mut self) {
        let mut todo = std::mem::take(&mut self.children);
        while let Some(child) = todo.pop() {
            if let Some(Node {
                below: Below::Fork(mut fork),
                ..
            }) = Arc::into_inner(child)
            {
                todo.append(&mut fork.children);
            }
        }
    }
}
