package inventory

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

// A state has the containers of all pods. Of each pod it keeps only what is reported. It is safe for concurrent use.
type state struct {
	mu      sync.Mutex
	pods    map[types.UID][]container
	changes chan struct{} // has an element if something may have changed since the last call of entries
	listed  chan struct{} // closed as soon as all pods are known
	once    sync.Once
}

func newState() *state {
	return &state{pods: map[types.UID][]container{}, changes: make(chan struct{}, 1), listed: make(chan struct{})}
}

// set replaces what is known about a pod.
func (s *state) set(p *corev1.Pod) {
	containers := containersOf(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(s.pods[p.UID], containers) {
		return
	}
	if s.pods[p.UID] = containers; len(containers) == 0 {
		delete(s.pods, p.UID)
	}
	s.changed()
}

// remove removes a pod.
func (s *state) remove(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.pods[uid]; ok {
		delete(s.pods, uid)
		s.changed()
	}
}

// keep removes all pods that are not in a complete list.
func (s *state) keep(listed map[types.UID]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid := range s.pods {
		if !listed[uid] {
			delete(s.pods, uid)
			s.changed()
		}
	}
	s.once.Do(func() { close(s.listed) })
}

func (s *state) changed() {
	select {
	case s.changes <- struct{}{}:
	default:
	}
}

// entries returns what runs. Containers that differ only in their time are one entry, with the time at which the first
// one was started.
func (s *state) entries() (all []*findingspb.InventoryEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	byKey := map[container]*findingspb.InventoryEntry{}
	for _, containers := range s.pods {
		for _, c := range containers {
			key := c
			key.started = time.Time{}
			e := byKey[key]
			if e == nil {
				e = &findingspb.InventoryEntry{
					Namespace: c.namespace, Workload: c.workload, Container: c.name, Image: c.image, Digest: c.digest,
				}
				byKey[key], all = e, append(all, e)
			}
			e.Copies++
			if first := e.GetStartTime(); !c.started.IsZero() && (first == nil || c.started.Before(first.AsTime())) {
				e.StartTime = timestamppb.New(c.started)
			}
		}
	}
	slices.SortFunc(all, func(a, b *findingspb.InventoryEntry) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetWorkload(), b.GetWorkload()),
			cmp.Compare(a.GetContainer(), b.GetContainer()), cmp.Compare(a.GetImage(), b.GetImage()),
			cmp.Compare(a.GetDigest(), b.GetDigest()))
	})
	return all
}
