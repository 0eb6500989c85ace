package e2e_test

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// bucketReplicas are three servers with one database and one bucket. They redirect pulls to the bucket.
type bucketReplicas struct {
	servers [3]*proc
	issuer  *token.Issuer
	plain   *http.Client // follows no redirects
}

// A pusher is a workload that may push in its own group.
type pusher struct {
	identity, binding resource.UID
	group             procGroup
	token             string
}

func startBucketReplicas(t *testing.T) *bucketReplicas {
	t.Helper()
	database, key, bucket := storetest.Postgres(t), secret.NewKey(), s3Start(t)
	here := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	x := &bucketReplicas{plain: &http.Client{Timeout: procPatience, CheckRedirect: here}}
	for i := range x.servers {
		x.servers[i] = procStart(t, append(bucket, "HOLDFAST_DATA_DIR="+t.TempDir(), "HOLDFAST_DATABASE="+database,
			"HOLDFAST_ENCRYPTION_KEY="+key.Text(), "HOLDFAST_BLOB_REDIRECT=true")...)
	}
	var err error
	x.issuer, err = token.New(t.Context(), storetest.Open(t, database).DB, token.Config{Issuer: procBase, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// pusher creates a group with a workload that may push there.
func (x *bucketReplicas) pusher(t *testing.T, name string) *pusher {
	t.Helper()
	p := x.servers[0]
	api := p.owner()
	group := procMust[procGroup](t, api, http.MethodPost, "/iam/v2beta1/groups/"+string(p.dev.Organization),
		map[string]any{"name": name})
	i := procMust[procGroup](t, api, http.MethodPost, "/iam/v2beta1/identities/"+string(group.UID), map[string]any{
		"name": name, "claimMatch": map[string]string{"issuer": "https://issuer.test", "subject": name},
	})
	b := procMust[procGroup](t, api, http.MethodPost, "/iam/v2beta1/roleBindings/"+string(group.UID),
		map[string]any{"identityUid": i.UID, "roleUid": resource.ManagedRoleUID("registry.push")})
	raw, err := x.issuer.Mint(t.Context(), token.Claims{
		Subject: i.UID, Audience: []string{strings.TrimPrefix(procBase, "http://")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &pusher{i.UID, b.UID, group, raw}
}

// as sends a request to the registry of one replica.
func (x *bucketReplicas) as(
	t *testing.T, on int, w *pusher, method, path string, body []byte, headers ...string,
) (*http.Response, []byte) {
	t.Helper()
	c := &ociClient{x.servers[on].address, w.token, x.plain}
	resp, text, err := c.send(t.Context(), method, path, body, headers...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp, text
}

// fetch sends a request to an address of the bucket without any credentials.
func (x *bucketReplicas) fetch(t *testing.T, method string, u *url.URL, body []byte) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, u.String(), bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := x.plain.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, text
}

const bucketPart = 6 << 20 // a part of an upload to a bucket has at least 5 MiB

// begin starts an upload on a replica and sends its first part. It returns the location of the upload.
func (x *bucketReplicas) begin(t *testing.T, on int, w *pusher, repo string, content []byte) string {
	t.Helper()
	resp, text := x.as(t, on, w, http.MethodPost, "/v2/"+repo+"/blobs/uploads/", nil)
	if resp.StatusCode != http.StatusAccepted {
		t.Fatalf("an upload: %d %s", resp.StatusCode, text)
	}
	resp, text = x.as(t, on, w, http.MethodPatch, resp.Header.Get("Location"), content[:bucketPart])
	if resp.StatusCode != http.StatusAccepted {
		t.Fatalf("a part of an upload: %d %s", resp.StatusCode, text)
	}
	return resp.Header.Get("Location")
}

// push uploads a blob through all three replicas.
func (x *bucketReplicas) push(t *testing.T, w *pusher, repo string, content []byte) {
	t.Helper()
	location := x.begin(t, 0, w, repo, content)
	resp, text := x.as(t, 1, w, http.MethodPatch, location, content[bucketPart:2*bucketPart], "Content-Range",
		strconv.Itoa(bucketPart)+"-"+strconv.Itoa(2*bucketPart-1))
	if resp.StatusCode != http.StatusAccepted {
		t.Fatalf("a part of an upload on another replica: %d %s", resp.StatusCode, text)
	}
	resp, text = x.as(t, 2, w, http.MethodPut, resp.Header.Get("Location")+"?digest="+ociDigest(content),
		content[2*bucketPart:])
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("the end of an upload on a third replica: %d %s", resp.StatusCode, text)
	}
}

// TestAttackBucketReplicas attacks three replicas with one bucket: signed addresses are changed, uploads of others are
// continued, and a workload continues on every replica after its binding was deleted on one of them. Next to it, an
// upload moves through all replicas, and signed addresses return the blob.
func TestAttackBucketReplicas(t *testing.T) {
	t.Parallel()
	x := startBucketReplicas(t)
	ann, eve := x.pusher(t, "ann"), x.pusher(t, "eve")
	content := bytes.Repeat([]byte("0123456789abcdef"), 800_000) // 12.8 MB
	other := bytes.Repeat([]byte("fedcba9876543210"), 800_000)
	x.push(t, ann, "dev/ann/app", content)
	x.push(t, eve, "dev/eve/app", other)
	blob := "/v2/dev/ann/app/blobs/" + ociDigest(content)
	var address *url.URL
	for on := range x.servers {
		resp, _ := x.as(t, on, ann, http.MethodGet, blob, nil)
		if resp.StatusCode != http.StatusTemporaryRedirect {
			t.Fatalf("replica %d: %d", on, resp.StatusCode)
		}
		address = ok[*url.URL](t)(url.Parse(resp.Header.Get("Location")))
		if status, got := x.fetch(t, http.MethodGet, address, nil); status != 200 || !bytes.Equal(got, content) {
			t.Errorf("the signed address of replica %d: %d, %d bytes", on, status, len(got))
		}
		resp, _ = x.as(t, on, eve, http.MethodGet, blob, nil)
		if got := resp.Header.Get("Location"); got != "" || resp.StatusCode < 400 {
			t.Errorf("replica %d gives a stranger the address %s", on, got)
		}
	}
	resp, _ := x.as(t, 0, eve, http.MethodGet, "/v2/dev/eve/app/blobs/"+ociDigest(other), nil)
	x.changesAddress(t, address, ok[*url.URL](t)(url.Parse(resp.Header.Get("Location"))))
	x.continuesUploads(t, ann, eve, content)

	upload := x.begin(t, 0, ann, "dev/ann/app", content)
	procMust[any](t, x.servers[1].owner(), http.MethodDelete, "/iam/v2beta1/roleBindings/"+string(ann.binding), nil)
	for on := range x.servers {
		for what, r := range map[string][2]string{
			"a pull":             {http.MethodGet, blob},
			"a check":            {http.MethodHead, blob},
			"a new upload":       {http.MethodPost, "/v2/dev/ann/app/blobs/uploads/"},
			"the next part":      {http.MethodPatch, upload},
			"the end":            {http.MethodPut, upload + "?digest=" + ociDigest(content[:bucketPart])},
			"the size":           {http.MethodGet, upload},
			"a mount":            {http.MethodPost, "/v2/dev/ann/app/blobs/uploads/?mount=" + ociDigest(content)},
			"a deletion":         {http.MethodDelete, blob},
			"a list of the tags": {http.MethodGet, "/v2/dev/ann/app/tags/list"},
		} {
			if resp, text := x.as(t, on, ann, r[0], r[1], nil); resp.StatusCode < 400 || resp.StatusCode >= 500 {
				t.Errorf("replica %d allows %s after the revocation: %d %s", on, what, resp.StatusCode, text)
			}
		}
	}
	resp, _ = x.as(t, 2, eve, http.MethodGet, "/v2/dev/eve/app/blobs/"+ociDigest(other), nil)
	if resp.StatusCode != http.StatusTemporaryRedirect {
		t.Errorf("the other workload cannot pull: %d", resp.StatusCode)
	}
}

// changesAddress changes a signed address, which must not give access to anything else, nor for longer.
func (x *bucketReplicas) changesAddress(t *testing.T, address, other *url.URL) {
	t.Helper()
	life := ok[int](t)(strconv.Atoi(address.Query().Get("X-Amz-Expires")))
	if life > 20*60 {
		t.Errorf("a signed address is valid for %d seconds", life)
	}
	with := func(change func(u *url.URL, q url.Values)) *url.URL {
		u, q := *address, address.Query()
		change(&u, q)
		u.RawQuery = q.Encode()
		return &u
	}
	folder, _, _ := strings.Cut(strings.TrimPrefix(address.Path, "/"), "/")
	for what, u := range map[string]*url.URL{
		"another blob":       with(func(u *url.URL, _ url.Values) { u.Path = other.Path }),
		"the list of blobs":  with(func(u *url.URL, _ url.Values) { u.Path = "/" + folder }),
		"a longer life":      with(func(_ *url.URL, q url.Values) { q.Set("X-Amz-Expires", "604800") }),
		"a later date":       with(func(_ *url.URL, q url.Values) { q.Set("X-Amz-Date", "20990101T000000Z") }),
		"no signature":       with(func(u *url.URL, q url.Values) { clear(q) }),
		"an empty signature": with(func(_ *url.URL, q url.Values) { q.Set("X-Amz-Signature", "") }),
		"another media type": with(func(_ *url.URL, q url.Values) { q.Set("response-content-type", "text/html") }),
		"the other signature": with(func(_ *url.URL, q url.Values) {
			q.Set("X-Amz-Signature", other.Query().Get("X-Amz-Signature"))
		}),
	} {
		if status, text := x.fetch(t, http.MethodGet, u, nil); status < 400 {
			t.Errorf("a signed address with %s: %d, %d bytes", what, status, len(text))
		}
	}
	for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodPost} {
		if status, _ := x.fetch(t, method, address, []byte("evil")); status < 400 {
			t.Errorf("%s at a signed address: %d", method, status)
		}
	}
	if status, _ := x.fetch(t, http.MethodGet, address, nil); status != http.StatusOK {
		t.Errorf("the signed address after the attacks: %d", status)
	}
}

// continuesUploads lets one workload continue the upload of another, through its own repo and through the other's.
func (x *bucketReplicas) continuesUploads(t *testing.T, ann, eve *pusher, content []byte) {
	t.Helper()
	upload := x.begin(t, 0, ann, "dev/ann/app", content)
	id := upload[strings.LastIndex(upload, "/"):]
	for on := range x.servers {
		for _, location := range []string{upload, "/v2/dev/eve/app/blobs/uploads" + id} {
			for what, r := range map[string][2]string{
				"reads the size of":  {http.MethodGet, location},
				"appends to":         {http.MethodPatch, location},
				"finishes":           {http.MethodPut, location + "?digest=" + ociDigest(content[:bucketPart])},
				"cancels the upload": {http.MethodDelete, location},
			} {
				if resp, text := x.as(t, on, eve, r[0], r[1], nil); resp.StatusCode < 400 || resp.StatusCode >= 500 {
					t.Errorf("replica %d: a stranger %s at %s: %d %s", on, what, location, resp.StatusCode, text)
				}
			}
		}
	}
	resp, text := x.as(t, 1, ann, http.MethodPut, upload+"?digest="+ociDigest(content[:bucketPart]), nil)
	if resp.StatusCode != http.StatusCreated {
		t.Errorf("the end of an upload after the attacks: %d %s", resp.StatusCode, text)
	}
}
