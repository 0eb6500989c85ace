package admission

import (
	"encoding/json"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// everyUse is a specification with each place that can name an image.
var everyUse = corev1.PodSpec{
	InitContainers: []corev1.Container{{Image: "init"}},
	Containers:     []corev1.Container{{Image: "first"}, {Image: "second"}},
	EphemeralContainers: []corev1.EphemeralContainer{
		{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Image: "debug"}},
	},
	Volumes: []corev1.Volume{
		{Name: "empty"},
		{Name: "model", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "volume"}}},
	},
}

// TestUses finds each image in objects of each kind, at the place to which its pointer leads.
func TestUses(t *testing.T) {
	template := corev1.PodTemplateSpec{Spec: everyUse}
	for kind, object := range map[string]any{
		"Pod":         corev1.Pod{Spec: everyUse},
		"PodTemplate": corev1.PodTemplate{Template: template},
		"Deployment":  appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: template}},
		"ReplicaSet":  appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Template: template}},
		"StatefulSet": appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Template: template}},
		"DaemonSet":   appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: template}},
		"Job":         batchv1.Job{Spec: batchv1.JobSpec{Template: template}},
		"CronJob": batchv1.CronJob{Spec: batchv1.CronJobSpec{
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}},
		}},
		"ReplicationController": corev1.ReplicationController{Spec: corev1.ReplicationControllerSpec{Template: &template}},
	} {
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		uses, err := usesOf(kind, text)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, u := range uses {
			found = append(found, u.image)
			if got := valueAt(t, text, u.pointer); got != u.image {
				t.Errorf("%s: %s leads to %v, want %s", kind, u.pointer, got, u.image)
			}
		}
		if want := []string{"init", "first", "second", "debug", "volume"}; !slices.Equal(found, want) {
			t.Errorf("%s: %v, want %v", kind, found, want)
		}
	}
	if uses, err := usesOf("ConfigMap", []byte(`{"spec":{"containers":[{"image":"a"}]}}`)); err != nil || uses != nil {
		t.Errorf("another kind: %v, %v", uses, err)
	}
	if _, err := usesOf("Pod", []byte(`{"spec":{"containers":{}}}`)); err == nil {
		t.Error("a pod of the wrong form is understood")
	}
}

// valueAt returns the value to which a JSON pointer leads.
func valueAt(t *testing.T, text []byte, pointer string) any {
	t.Helper()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	for _, step := range splitPointer(pointer) {
		switch v := value.(type) {
		case map[string]any:
			value = v[step]
		case []any:
			value = v[int(step[0]-'0')]
		}
	}
	return value
}

func splitPointer(pointer string) (steps []string) {
	for rest := pointer; rest != ""; {
		end := slices.Index([]byte(rest[1:]), '/') + 1
		if end == 0 {
			return append(steps, rest[1:])
		}
		steps, rest = append(steps, rest[1:end]), rest[end:]
	}
	return steps
}

// TestNewUses leaves out images that the object had before.
func TestNewUses(t *testing.T) {
	const before = `{"spec":{"containers":[{"image":"a"},{"image":"b"}]}}`
	const after = `{"spec":{"containers":[{"image":"b"},{"image":"c"}]}}`
	uses, err := newUses("Pod", []byte(after), []byte(before))
	if err != nil || len(uses) != 1 || uses[0] != (use{"/spec/containers/1/image", "c"}) {
		t.Errorf("%v, %v", uses, err)
	}
}

func TestSplitHost(t *testing.T) {
	for image, want := range map[string][2]string{
		"nginx":                               {"docker.io", "nginx"},
		"acme/app:1":                          {"docker.io", "acme/app:1"},
		"localhost/app":                       {"localhost", "app"},
		"Acme/app":                            {"acme", "app"},
		"REGISTRY.Example.com/acme/app":       {"registry.example.com", "acme/app"},
		"registry.example.com:443/acme/app:1": {"registry.example.com", "acme/app:1"},
		"registry.example.com:4430/app":       {"registry.example.com:4430", "app"},
		"":                                    {"docker.io", ""},
		"/":                                   {"docker.io", "/"},
	} {
		if host, rest := splitHost(image); host != want[0] || rest != want[1] {
			t.Errorf("%q: %q, %q", image, host, rest)
		}
	}
}

func TestOtherRegistries(t *testing.T) {
	r := Rules{Others: map[string]Action{"": Refuse, "docker.io/library/": Warn, "ghcr.io/acme/": Allow}}
	for image, want := range map[string]Action{
		"nginx": Warn, "library/nginx": Warn, "acme/app": Refuse, "ghcr.io/acme/app": Allow, "ghcr.io/acme2/app": Refuse,
		"docker.io.example.com/library/a": Refuse,
	} {
		if got := r.other(splitHost(image)); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
	if got := (Rules{}).other("docker.io", "nginx"); got != Allow {
		t.Errorf("without rules: %s", got)
	}
}

// FuzzUses sends objects that no API server accepts.
func FuzzUses(f *testing.F) {
	f.Add("Pod", []byte(`{"spec":{"containers":[{"image":"a"}]}}`))
	f.Add("CronJob", []byte(`{"spec":{"jobTemplate":null}}`))
	f.Add("Deployment", []byte(`[]`))
	f.Fuzz(func(t *testing.T, kind string, object []byte) {
		uses, _ := usesOf(kind, object)
		for _, u := range uses {
			host, rest := splitHost(u.image)
			_ = Rules{}.other(host, rest)
		}
	})
}
