package transfer

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

func digestOf(s string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(s))) }

const imageType = "application/vnd.oci.image.manifest.v1+json"

// image returns a manifest with one blob.
func image(layer string) string {
	return fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"layers":[{"mediaType":"x","digest":%q,"size":%d}]}`,
		imageType, digestOf(layer), len(layer))
}

// A hostile is a registry that answers with its handler and records the requests.
type hostile struct {
	*httptest.Server
	mu      sync.Mutex
	written []string
}

func newHostile(t *testing.T, h http.HandlerFunc) *hostile {
	s := &hostile{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			s.mu.Lock()
			s.written = append(s.written, r.URL.Path)
			s.mu.Unlock()
		}
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// wrote returns the paths of PUT requests.
func (s *hostile) wrote() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.written)
}

func (s *hostile) host() string { return strings.TrimPrefix(s.URL, "http://") }

// sink returns a registry that accepts every complete upload.
func sink(t *testing.T) *hostile {
	return newHostile(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodHead:
			w.WriteHeader(http.StatusNotFound)
		case http.MethodPost:
			w.Header().Set("Location", "/v2/up")
			w.WriteHeader(http.StatusAccepted)
		case http.MethodPut:
			buf := make([]byte, 1<<16)
			for {
				if _, err := r.Body.Read(buf); err != nil {
					if err.Error() != "EOF" {
						panic(http.ErrAbortHandler) // aborts, because the upload is incomplete
					}
					break
				}
			}
			w.WriteHeader(http.StatusCreated)
		}
	})
}

// TestHostileSources checks that only content with the right digest arrives, and that
// endless answers are refused.
func TestHostileSources(t *testing.T) {
	layer := strings.Repeat("layer", 1000)
	serve := func(manifest, blob string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/blobs/") {
				fmt.Fprint(w, blob)
				return
			}
			w.Header().Set("Content-Type", imageType)
			fmt.Fprint(w, manifest)
		}
	}
	for name, tt := range map[string]struct {
		h         http.HandlerFunc
		reference string
		want      string // part of the expected error; if "", no error
	}{
		"an honest one":            {serve(image(layer), layer), "v1", ""},
		"another manifest":         {serve(image(layer), layer), digestOf("other"), "is not " + digestOf("other")},
		"another blob":             {serve(image(layer), strings.Repeat("LAYER", 1000)), "v1", "the content is not"},
		"a blob that ends early":   {serve(image(layer), layer[:100]), "v1", "ended early"},
		"a blob with more":         {serve(image(layer), layer+"x"), "v1", "the content is not"},
		"a page":                   {serve("<html>", layer), "v1", "is not a manifest"},
		"a manifest without end":   {serve(strings.Repeat(" ", maxManifest+1), layer), "v1", "is too large"},
		"a digest of another kind": {serve(`{"layers":[{"digest":"md5:x","size":1}]}`, layer), "v1", "is not a digest"},
		"a digest that is a path": {
			serve(`{"layers":[{"digest":"sha256:../../x","size":1}]}`, layer), "v1", "is not a digest",
		},
		"a child that is elsewhere": {serve(`{"manifests":[{"digest":"sha256:../x"}]}`, layer), "v1", "is not a digest"},
		"a lie about its digest": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Docker-Content-Digest", digestOf("lie"))
			serve(image(layer), layer)(w, r)
		}, "v1", "is not " + digestOf("lie")},
		"redirects without end": {
			func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) }, "v1",
			"too many redirects",
		},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := newHostile(t, tt.h), sink(t)
			c := &Copier{From: Repo{New(from.host(), "", ""), "a/b"}, To: Repo{New(to.host(), "", ""), "c/d"}}
			_, err := c.Copy(t.Context(), tt.reference, "copy")
			written := to.wrote()
			if tt.want == "" {
				if err != nil || len(written) != 2 {
					t.Fatalf("error = %v, written %v", err, written)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
			for _, path := range written {
				if strings.Contains(path, "/manifests/") {
					t.Errorf("%s was written", path)
				}
			}
		})
	}
}

// TestPasswordsStayHome checks that a password is sent only to its registry, and not to a
// token service or a redirect at another host.
func TestPasswordsStayHome(t *testing.T) {
	thief := newHostile(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Errorf("the thief was shown %q", r.Header.Get("Authorization"))
		}
		fmt.Fprint(w, `{"token":"x"}`)
	})
	challenge := func(realm string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Www-Authenticate", `Bearer realm="`+realm+`",service="s"`)
			w.WriteHeader(http.StatusUnauthorized)
		}
	}
	for name, h := range map[string]http.HandlerFunc{
		"a realm elsewhere": challenge(thief.URL),
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "" {
				w.Header().Set("Www-Authenticate", "Basic")
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			http.Redirect(w, r, thief.URL, http.StatusFound)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := Repo{New(newHostile(t, h).host(), "user", "secret"), "a/b"}
			if _, _, _, err := r.manifest(t.Context(), "v1"); err == nil && name == "a realm elsewhere" {
				t.Error("the request succeeded")
			}
		})
	}
	own := &Registry{base: "https://registry-1.docker.io"}
	for realm, want := range map[string]bool{
		"https://auth.docker.io/token": true, "https://registry-1.docker.io/token": true,
		"http://auth.docker.io/token":      false,
		"https://auth.docker.io.evil.com/": false, "https://evildocker.io/": false, "https://1.2.3.4/": false,
		"https://docker.io/": true,
	} {
		u, err := url.Parse(realm)
		if err != nil {
			t.Fatal(err)
		}
		if got := own.trusts(u); got != want {
			t.Errorf("trusts(%s) = %v", realm, got)
		}
	}
}

// TestTagsEnd checks that a list of tags whose pages never end is an error.
func TestTagsEnd(t *testing.T) {
	r := Repo{New(newHostile(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", `<https://elsewhere.example/v2/x?last=a>; rel="next"`)
		fmt.Fprint(w, `{"tags":["v1"]}`)
	}).host(), "", ""), "a/b"}
	if _, err := r.Tags(t.Context(), "v*"); err == nil || !strings.Contains(err.Error(), "does not end") {
		t.Errorf("error = %v", err)
	}
}

// TestHostileReferrers checks that a list of referrers that cannot be read completely is
// an error, and that no link leads to another host.
func TestHostileReferrers(t *testing.T) {
	layer := "layer"
	elsewhere := newHostile(t, func(http.ResponseWriter, *http.Request) { t.Error("a link was followed elsewhere") })
	list := func(digest, link string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", link)
			fmt.Fprintf(w, `{"schemaVersion":2,"manifests":[{"digest":%q}]}`, digest)
		}
	}
	pages := 0
	for name, tt := range map[string]struct {
		h    http.HandlerFunc
		want string // part of the expected error; if "", no error
	}{
		"none": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, ""},
		"not as a method": {
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) }, "",
		},
		"a page that is one": {
			func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, "sends an invalid list of referrers",
		},
		"something else": {
			func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }, "sends an invalid list of referrers",
		},
		"too long": {
			func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat(" ", maxManifest+1)) },
			"sends an invalid list of referrers",
		},
		"a tag":  {list("v1", ""), "sends an invalid list of referrers"},
		"a path": {list("sha256:../../x", ""), "sends an invalid list of referrers"},
		"a loop": {list(digestOf(image(layer)), `<?last=a>; rel="next"`), "does not end"},
		"without end": {func(w http.ResponseWriter, r *http.Request) {
			pages++
			list(digestOf(image(layer)), fmt.Sprintf(`<?last=%d>; rel="next"`, pages))(w, r)
		}, "does not end"},
		"long pages without end": {func(w http.ResponseWriter, r *http.Request) {
			pages++
			w.Header().Set("Link", fmt.Sprintf(`<?last=%d>; rel="next"`, pages))
			fmt.Fprintf(w, `{"schemaVersion":2,"x":%q}`, strings.Repeat("x", maxManifest/2))
		}, "does not end"},
		"elsewhere": {list(digestOf(image(layer)), "<"+elsewhere.URL+`/x?last=a>; rel="next"`), "does not end"},
	} {
		t.Run(name, func(t *testing.T) {
			pages = 0
			from := newHostile(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case strings.Contains(r.URL.Path, "/referrers/"):
					tt.h(w, r)
				case strings.Contains(r.URL.Path, "/manifests/sha256-"):
					w.WriteHeader(http.StatusNotFound)
				case strings.Contains(r.URL.Path, "/blobs/"):
					fmt.Fprint(w, layer)
				default:
					w.Header().Set("Content-Type", imageType)
					fmt.Fprint(w, image(layer))
				}
			})
			c := &Copier{
				From: Repo{New(from.host(), "", ""), "a/b"}, To: Repo{New(sink(t).host(), "", ""), "c/d"}, Referrers: true,
			}
			_, err := c.Copy(t.Context(), "v1", "copy")
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
			if pages > maxPages {
				t.Errorf("%d pages were read", pages)
			}
		})
	}
}
