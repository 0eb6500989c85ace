package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"
)

// rollingRepo is the repo to which the clients push.
const rollingRepo = "/v2/dev/app"

// push returns a step that pushes an image with one layer.
func (l *rollingClients) push(pusher int) func() {
	config := []byte(`{"os":"linux","architecture":"amd64"}`)
	n := 0
	return func() {
		n++
		tag := fmt.Sprintf("p%d-%d", pusher, n)
		layer := bytes.Repeat([]byte(tag), 1+rand.IntN(20_000))
		if !l.pushBlob(config) || !l.pushBlob(layer) {
			return
		}
		manifest := fmt.Sprintf(`{"schemaVersion":2,"config":%s,"layers":[%s]}`,
			rollingDescribe(config), rollingDescribe(layer))
		_, ok := l.registry("push", http.MethodPut, rollingRepo+"/manifests/"+tag, []byte(manifest), http.StatusCreated)
		if ok {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.images = append(l.images, tag)
		}
	}
}

func rollingDescribe(b []byte) string {
	return fmt.Sprintf(`{"mediaType":"application/octet-stream","digest":%q,"size":%d}`, ociDigest(b), len(b))
}

// pushBlob pushes a blob in two chunks. If there was no response to a chunk, it starts the upload again, because it
// does not know how many bytes have arrived.
func (l *rollingClients) pushBlob(content []byte) bool {
	start := time.Now()
	for {
		status, text, err := l.tryBlob(content)
		again := err != nil || rollingUnavailable(status)
		if again && time.Since(start) < rollingPatience && !l.givenUp() {
			l.again("push")
			continue
		}
		ok := err == nil && status == http.StatusCreated
		l.count("push", start, ok)
		if !ok {
			l.t.Errorf("push: status %d %s (%v)", status, text, err)
		}
		return ok
	}
}

// tryBlob pushes a blob, and stops at the first failure.
func (l *rollingClients) tryBlob(content []byte) (status int, text []byte, err error) {
	half, location := len(content)/2, rollingRepo+"/blobs/uploads/"
	for _, r := range []rollingRequest{
		{method: http.MethodPost, want: http.StatusAccepted},
		{method: http.MethodPatch, body: content[:half], want: http.StatusAccepted},
		{method: http.MethodPut, body: content[half:], want: http.StatusCreated},
	} {
		r.path, r.token = location, l.dev.RegistryToken
		if r.method == http.MethodPut {
			r.path += "?digest=" + ociDigest(content)
		}
		var header http.Header
		status, header, text, err = l.attempt(r)
		if err != nil || status != r.want {
			return status, text, err
		}
		location = header.Get("Location")
	}
	return status, text, nil
}

// pull pulls an acknowledged image.
func (l *rollingClients) pull() {
	l.mu.Lock()
	var tag string
	if len(l.images) > 0 {
		tag = l.images[rand.IntN(len(l.images))]
	}
	l.mu.Unlock()
	if tag != "" {
		l.pullImage(tag)
	}
}

// pullImage pulls an image, and fails the test unless the image is complete.
func (l *rollingClients) pullImage(tag string) {
	a, ok := l.registry("pull", http.MethodGet, rollingRepo+"/manifests/"+tag, nil, http.StatusOK)
	if !ok {
		return
	}
	var manifest struct{ Layers []struct{ Digest string } }
	if err := json.Unmarshal(a.body, &manifest); err != nil || len(manifest.Layers) != 1 {
		l.t.Errorf("pull: %v in %s", err, a.body)
		return
	}
	digest := manifest.Layers[0].Digest
	a, ok = l.registry("pull", http.MethodGet, rollingRepo+"/blobs/"+digest, nil, http.StatusOK)
	if ok && ociDigest(a.body) != digest {
		l.t.Errorf("pull: the content of %s of %s is wrong", digest, tag)
	}
}

// survey fails the test unless all acknowledged groups and images are stored and every replica was asked about
// grants.
func (l *rollingClients) survey() {
	for _, g := range l.groups {
		l.expectGroup(g)
	}
	for _, tag := range l.images {
		l.pullImage(tag)
	}
	if slices.Contains(l.checked, 0) {
		l.t.Errorf("the replicas were asked %v times about a grant", l.checked)
	}
}

// report logs how many requests of each kind the clients have sent, and how long they took.
func (l *rollingClients) report(took time.Duration) {
	var total rollingCount
	for _, what := range slices.Sorted(maps.Keys(l.counts)) {
		n := l.counts[what]
		l.t.Logf("%-8s %5d requests, %3d repeated, %d failed, the longest took %s",
			what, n.requests, n.repeated, n.failed, n.longest.Round(time.Millisecond))
		total.requests, total.repeated = total.requests+n.requests, total.repeated+n.repeated
		total.failed += n.failed
	}
	l.t.Logf("%d requests, %d repeated, %d failed in %s; %d groups and %d images acknowledged; "+
		"the replicas were asked %v times about a grant", total.requests, total.repeated, total.failed,
		took.Round(time.Second), len(l.groups), len(l.images), l.checked)
}
