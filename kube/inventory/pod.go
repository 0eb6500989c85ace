// Package inventory reports to Holdfast which images run in a Kubernetes cluster.
package inventory

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A container is a container that runs an image, or will run it.
type container struct {
	namespace, workload, name, image, digest string
	started                                  time.Time // zero if it does not run
}

// containersOf returns the containers of a pod, or none if the pod has ended.
func containersOf(p *corev1.Pod) (all []container) {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil
	}
	states := map[string]corev1.ContainerStatus{}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses,
		p.Status.EphemeralContainerStatuses) {
		states[s.Name] = s
	}
	add := func(name, image string, ends bool) {
		s := states[name]
		if ends && s.State.Terminated != nil {
			return
		}
		c := container{
			namespace: p.Namespace, workload: workloadOf(p), name: name, image: image, digest: digestOf(s.ImageID, image),
		}
		if s.State.Running != nil {
			c.started = s.State.Running.StartedAt.Time
		}
		all = append(all, c)
	}
	for _, c := range p.Spec.InitContainers {
		add(c.Name, c.Image, true)
	}
	for _, c := range p.Spec.Containers {
		add(c.Name, c.Image, false) // one that has ended is started again
	}
	for _, c := range p.Spec.EphemeralContainers {
		add(c.Name, c.Image, true)
	}
	return all
}

var digestAtEnd = regexp.MustCompile(`@(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`)

// digestOf returns the digest of the manifest that a node reports, or that the name of the image has, or "". A digest
// without a repo is ignored, because it is the digest of the configuration, which does not identify an image.
func digestOf(references ...string) string {
	for _, r := range references {
		if m := digestAtEnd.FindStringSubmatch(r); m != nil {
			return m[1]
		}
	}
	return ""
}

// workloadOf returns the kind and the name of the controller of a pod. For a replica set, it returns the deployment.
func workloadOf(p *corev1.Pod) string {
	for _, o := range p.OwnerReferences {
		if o.Controller == nil || !*o.Controller {
			continue
		}
		hash := p.Labels["pod-template-hash"]
		if name, ok := strings.CutSuffix(o.Name, "-"+hash); ok && hash != "" && o.Kind == "ReplicaSet" {
			return "Deployment/" + name
		}
		return o.Kind + "/" + o.Name
	}
	return "Pod/" + cmp.Or(p.Name, p.GenerateName)
}
