package registry

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

// workloadFormats are the formats that parseWorkloads reads.
var workloadFormats = []string{"kubernetes", "compose", "list"}

// parseWorkloads returns what runs according to a document: pods as kubectl prints them as
// JSON, a compose file, or a list of digests and references. Without a format it finds
// out which it is. Equal entries are counted together.
func parseWorkloads(format string, text []byte) (all []*findingspb.InventoryEntry, err error) {
	switch cmp.Or(format, formatOf(text)) {
	case "kubernetes":
		all, err = parsePods(text)
	case "compose":
		all, err = parseCompose(text)
	case "list":
		all, err = parseDigests(text)
	default:
		err = fmt.Errorf("%q is not a format; these are %s", format, strings.Join(workloadFormats, ", "))
	}
	return together(all), err
}

var composeKey = regexp.MustCompile(`(?m)^services\s*:`)

// formatOf returns the format that a document seems to have.
func formatOf(text []byte) string {
	switch {
	case bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")):
		return "kubernetes"
	case composeKey.Match(text):
		return "compose"
	}
	return "list"
}

// maxCopies is the highest number of copies that the server takes.
const maxCopies = 1_000_000

// together counts equal entries, in the order in which they first come.
func together(all []*findingspb.InventoryEntry) (some []*findingspb.InventoryEntry) {
	seen := map[string]*findingspb.InventoryEntry{}
	for _, e := range all {
		key := strings.Join([]string{e.GetNamespace(), e.GetWorkload(), e.GetContainer(), e.GetImage(), e.GetDigest(),
			e.GetPlatform()}, "\x00")
		if have := seen[key]; have != nil {
			have.Copies = min(have.GetCopies()+e.GetCopies(), maxCopies)
			continue
		}
		seen[key] = e
		some = append(some, e)
	}
	return some
}

var digestAtEnd = regexp.MustCompile(`^(?:.*@)?(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`)

// digestIn returns the digest of a reference, or "".
func digestIn(reference string) string {
	if m := digestAtEnd.FindStringSubmatch(reference); m != nil {
		return m[1]
	}
	return ""
}

// A pod is what is read of a pod.
type pod struct {
	Kind     string
	Metadata struct {
		Namespace, Name string
		Labels          map[string]string
		OwnerReferences []struct {
			Kind, Name string
			Controller bool
		}
	}
	Spec struct {
		Containers, InitContainers, EphemeralContainers []struct{ Name, Image string }
		NodeSelector                                    map[string]string
	}
	Status struct {
		Phase                                                                string
		ContainerStatuses, InitContainerStatuses, EphemeralContainerStatuses []containerStatus
	}
}

// A containerStatus tells which image a container runs.
type containerStatus struct{ Name, Image, ImageID string }

// parsePods reads what kubectl get pods -o json prints: a list, or one pod. Pods that have
// come to their end are left out.
func parsePods(text []byte) (all []*findingspb.InventoryEntry, _ error) {
	var list struct {
		pod
		Items *[]pod
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("this is not what kubectl get pods -o json prints: %w", err)
	}
	pods := []pod{list.pod}
	switch {
	case list.Items != nil:
		pods = *list.Items
	case list.Kind != "Pod":
		return nil, fmt.Errorf("this is not what kubectl get pods -o json prints: it has no items")
	}
	for _, p := range pods {
		if p.Kind != "" && p.Kind != "Pod" {
			return nil, fmt.Errorf("a %.60s is not a pod: only pods tell which images run", p.Kind)
		}
		if p.Status.Phase != "Succeeded" && p.Status.Phase != "Failed" {
			all = append(all, p.entries()...)
		}
	}
	return all, nil
}

// entries returns the images of a pod, those of containers that do not run yet included.
func (p pod) entries() (all []*findingspb.InventoryEntry) {
	running := slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses, p.Status.EphemeralContainerStatuses)
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers, p.Spec.EphemeralContainers) {
		if !slices.ContainsFunc(running, func(s containerStatus) bool { return s.Name == c.Name }) {
			running = append(running, containerStatus{Name: c.Name, Image: c.Image})
		}
	}
	for _, c := range running {
		image := c.Image
		for _, s := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers, p.Spec.EphemeralContainers) {
			if s.Name == c.Name {
				image = cmp.Or(s.Image, image) // what was asked for; the status may have another name of it
			}
		}
		all = append(all, &findingspb.InventoryEntry{
			Namespace: p.Metadata.Namespace, Workload: p.workload(), Container: c.Name, Image: image,
			Digest: c.digest(image), Platform: p.platform(), Copies: 1,
		})
	}
	return all
}

// digest returns the digest of the manifest that a container runs. A digest without a
// repo is that of the configuration, by which nobody finds the image.
func (c containerStatus) digest(image string) string {
	for _, reference := range []string{c.ImageID, image, c.Image} {
		if strings.Contains(reference, "@") {
			if d := digestIn(reference); d != "" {
				return d
			}
		}
	}
	return ""
}

// workload returns what runs a pod. A replica set is named for its deployment.
func (p pod) workload() string {
	for _, o := range p.Metadata.OwnerReferences {
		if !o.Controller && len(p.Metadata.OwnerReferences) > 1 {
			continue
		}
		hash := p.Metadata.Labels["pod-template-hash"]
		if name, ok := strings.CutSuffix(o.Name, "-"+hash); ok && hash != "" && o.Kind == "ReplicaSet" {
			return "Deployment/" + name
		}
		return o.Kind + "/" + o.Name
	}
	return "Pod/" + p.Metadata.Name
}

// platform returns the platform that a pod asks for, or "".
func (p pod) platform() string {
	return strings.Trim(p.Spec.NodeSelector["kubernetes.io/os"]+"/"+p.Spec.NodeSelector["kubernetes.io/arch"], "/")
}

// parseCompose reads a compose file. Services that are built have no image, and are left
// out.
func parseCompose(text []byte) (all []*findingspb.InventoryEntry, _ error) {
	var file struct {
		Name     string
		Services map[string]struct {
			Image    string
			Platform string
			Scale    *int32
			Deploy   struct{ Replicas *int32 }
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("this is not a compose file: %w", err)
	}
	if len(file.Services) == 0 {
		return nil, fmt.Errorf("this is not a compose file: it has no services")
	}
	for name, s := range file.Services {
		if s.Image == "" {
			continue
		}
		copies := int32(1)
		for _, n := range []*int32{s.Scale, s.Deploy.Replicas} {
			if n != nil {
				copies = min(*n, maxCopies)
			}
		}
		if copies > 0 {
			all = append(all, &findingspb.InventoryEntry{Namespace: file.Name, Workload: name, Image: s.Image,
				Digest: atDigest(s.Image), Platform: s.Platform, Copies: copies})
		}
	}
	slices.SortFunc(all, func(a, b *findingspb.InventoryEntry) int { return cmp.Compare(a.GetWorkload(), b.GetWorkload()) })
	return all, nil
}

// atDigest returns what follows the @ of a reference, if that is a digest.
func atDigest(image string) string {
	if strings.Contains(image, "@") {
		return digestIn(image)
	}
	return ""
}

// maxLine is how long a line of a list may be.
const maxLine = 4096

// parseDigests reads a list: on each line a digest, or a reference with or without one.
// What follows a # is a comment.
func parseDigests(text []byte) (all []*findingspb.InventoryEntry, _ error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if strings.ContainsAny(line, " \t{}[]\"") || !utf8.ValidString(line) {
			return nil, fmt.Errorf("line %d is neither a digest nor the reference of an image", n)
		}
		e := &findingspb.InventoryEntry{Digest: digestIn(line), Copies: 1}
		if e.GetDigest() != line {
			e.Image = line
		}
		all = append(all, e)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("this is not a list of digests: %w", err)
	}
	return all, nil
}
