package admission

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// A use is a place in an object that names an image.
type use struct {
	pointer string // JSON pointer (RFC 6901) to the name
	image   string
}

// podSpec returns the specification of the pods of an object, and the JSON pointer to it. The specification is nil if
// objects of this kind have no pods.
func podSpec(kind string, object []byte) (spec *corev1.PodSpec, pointer string, err error) {
	switch kind {
	case "Pod":
		var pod corev1.Pod
		err = json.Unmarshal(object, &pod)
		spec, pointer = &pod.Spec, "/spec"
	case "PodTemplate":
		var template corev1.PodTemplate
		err = json.Unmarshal(object, &template)
		spec, pointer = &template.Template.Spec, "/template/spec"
	case "CronJob":
		var job batchv1.CronJob
		err = json.Unmarshal(object, &job)
		spec, pointer = &job.Spec.JobTemplate.Spec.Template.Spec, "/spec/jobTemplate/spec/template/spec"
	case "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController":
		var workload struct {
			Spec struct{ Template corev1.PodTemplateSpec }
		}
		err = json.Unmarshal(object, &workload)
		spec, pointer = &workload.Spec.Template.Spec, "/spec/template/spec"
	}
	if err != nil {
		return nil, "", fmt.Errorf("decode the %s: %w", kind, err)
	}
	return spec, pointer, nil
}

// usesOf returns the images that an object names: of its containers of every sort, and of its image volumes.
func usesOf(kind string, object []byte) (all []use, _ error) {
	spec, pointer, err := podSpec(kind, object)
	if err != nil || spec == nil {
		return nil, err
	}
	add := func(image string, path ...string) {
		if image != "" {
			all = append(all, use{pointer + "/" + strings.Join(path, "/"), image})
		}
	}
	for i, c := range spec.InitContainers {
		add(c.Image, "initContainers", strconv.Itoa(i), "image")
	}
	for i, c := range spec.Containers {
		add(c.Image, "containers", strconv.Itoa(i), "image")
	}
	for i, c := range spec.EphemeralContainers {
		add(c.Image, "ephemeralContainers", strconv.Itoa(i), "image")
	}
	for i, v := range spec.Volumes {
		if v.Image != nil {
			add(v.Image.Reference, "volumes", strconv.Itoa(i), "image", "reference")
		}
	}
	return all, nil
}

// newUses returns the uses of an object whose images the object before the change does not have. So a change of the
// number of replicas is possible although an image is refused by now.
func newUses(kind string, object, before []byte) ([]use, error) {
	uses, err := usesOf(kind, object)
	if err != nil || len(before) == 0 {
		return uses, err
	}
	old, err := usesOf(kind, before)
	return slices.DeleteFunc(uses, func(u use) bool {
		return slices.ContainsFunc(old, func(o use) bool { return o.image == u.image })
	}), err
}

// dockerHub is the host of images without a host.
const dockerHub = "docker.io"

// splitHost returns the host of an image and the rest of its name, as containerd does. The host is in lower case and
// without the port of HTTPS, so that each registry has one host.
func splitHost(image string) (host, rest string) {
	first, rest, found := strings.Cut(image, "/")
	if !found || !strings.ContainsAny(first, ".:") && first != "localhost" && first == strings.ToLower(first) {
		return dockerHub, image
	}
	return strings.TrimSuffix(strings.ToLower(first), ":443"), rest
}
