package inventory

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var (
	digest = "sha256:" + strings.Repeat("a", 64)
	began  = time.Date(2026, 11, 1, 8, 0, 0, 0, time.UTC)
)

// podNamed returns a pod of a deployment with one running container, an init container that has ended, and another
// one that keeps running.
func podNamed(uid string, started time.Time) *corev1.Pod {
	yes, always := true, corev1.ContainerRestartPolicyAlways
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(started)}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-6d4b75cb6d-" + uid, UID: types.UID(uid),
			Labels:          map[string]string{"pod-template-hash": "6d4b75cb6d"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-6d4b75cb6d", Controller: &yes}},
		},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{
				{Name: "prepare", Image: "prepare:1"}, {Name: "proxy", Image: "proxy:1", RestartPolicy: &always},
			},
			Containers: []corev1.Container{{Name: "web", Image: "registry.example.com/acme/app:1"}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning,
			InitContainerStatuses: []corev1.ContainerStatus{
				{Name: "prepare", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}},
				{Name: "proxy", ImageID: "sha256:" + strings.Repeat("b", 64), State: running},
			},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "web", ImageID: "registry.example.com/acme/app@" + digest, State: running},
			},
		},
	}
}

func TestContainers(t *testing.T) {
	p := podNamed("1", began)
	want := []container{
		{"shop", "Deployment/web", "proxy", "proxy:1", "", began},
		{"shop", "Deployment/web", "web", "registry.example.com/acme/app:1", digest, began},
	}
	if got := containersOf(p); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	p.Status = corev1.PodStatus{Phase: corev1.PodPending}
	p.Spec.Containers[0].Image = "registry.example.com/acme/app@" + digest
	if got := containersOf(p); len(got) != 3 || got[2].digest != digest || !got[2].started.IsZero() {
		t.Errorf("a pod that waits: %v", got)
	}
	p.Status.Phase = corev1.PodSucceeded
	if got := containersOf(p); got != nil {
		t.Errorf("a pod that has ended: %v", got)
	}
}

func TestWorkload(t *testing.T) {
	yes := true
	for want, p := range map[string]corev1.Pod{
		"Pod/alone": {ObjectMeta: metav1.ObjectMeta{Name: "alone"}},
		"Job/backup": {ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
			{Kind: "Other", Name: "x"}, {Kind: "Job", Name: "backup", Controller: &yes},
		}}},
		"ReplicaSet/web": {ObjectMeta: metav1.ObjectMeta{
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", Controller: &yes}},
		}},
	} {
		if got := workloadOf(&p); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestEntries adds up equal containers, with the time of the first one.
func TestEntries(t *testing.T) {
	s := newState()
	s.set(podNamed("1", began))
	s.set(podNamed("2", began.Add(-time.Hour)))
	s.set(podNamed("2", began.Add(-time.Hour)))
	got := s.entries()
	if len(got) != 2 || got[1].GetContainer() != "web" || got[1].GetCopies() != 2 ||
		!got[1].GetStartTime().AsTime().Equal(began.Add(-time.Hour)) {
		t.Errorf("%v", got)
	}
	s.keep(map[types.UID]bool{"1": true})
	if got := s.entries(); len(got) != 2 || got[1].GetCopies() != 1 || !got[1].GetStartTime().AsTime().Equal(began) {
		t.Errorf("after a list without the second pod: %v", got)
	}
	<-s.changes
	s.set(podNamed("1", began))
	s.remove("3")
	if len(s.changes) != 0 {
		t.Error("a change that changes nothing is reported")
	}
	s.remove("1")
	if got := s.entries(); len(got) != 0 || len(s.changes) != 1 {
		t.Errorf("after the last pod was deleted: %v", got)
	}
}
