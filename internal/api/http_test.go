package api_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// ask sends a request. It does not follow redirects or decompress the answer.
func ask(t *testing.T, w *world, request string, header ...string) (*http.Response, string) {
	t.Helper()
	verb, path, _ := strings.Cut(request, " ")
	r := check(http.NewRequestWithContext(t.Context(), verb, w.url+path, nil))(t)
	r.Header.Set("Authorization", "Bearer "+w.token)
	r.Header.Set("Accept-Encoding", "identity")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp := check(http.DefaultTransport.RoundTrip(r))(t)
	defer resp.Body.Close()
	return resp, string(check(io.ReadAll(resp.Body))(t))
}

// TestHead: wherever GET is possible, HEAD is, too. It has the headers of GET and no
// body.
func TestHead(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{
		"/iam/v2beta1/groups", "/iam/v2beta1/groups/" + string(w.org), "/iam/v1/groups", "/iam/v2/groups/",
		"/openapi.json", "/iam/v2beta1/groups/" + string(w.org.NewChild()), "/nowhere", "/advisories/v1/export?format=x",
	} {
		get, body := ask(t, w, "GET "+path)
		head, none := ask(t, w, "HEAD "+path)
		if head.StatusCode != get.StatusCode || head.ContentLength != int64(len(body)) || none != "" ||
			head.Header.Get("Content-Type") != get.Header.Get("Content-Type") {
			t.Errorf("%s: HEAD %d, %d bytes, %q; GET %d, %d bytes", path, head.StatusCode, head.ContentLength, none,
				get.StatusCode, len(body))
		}
	}
	if resp, _ := ask(t, w, "HEAD /iam/v2beta1/groups", "Authorization", ""); resp.StatusCode != 401 {
		t.Errorf("without a token: %d", resp.StatusCode)
	}
}

// TestMethodNotAllowed: the answer to an unsupported HTTP method lists the methods that
// the path supports. The client needs no token for that, because the public description of
// the API lists them, too.
func TestMethodNotAllowed(t *testing.T) {
	w := newWorld(t)
	for request, want := range map[string]string{
		// The path also matches templates in which the uid is empty.
		"PUT /iam/v2beta1/groups":                          "GET, HEAD, POST, PATCH, DELETE",
		"PUT /iam/v2beta1/groups/" + string(w.org):         "GET, HEAD, POST, PATCH, DELETE",
		"OPTIONS /iam/v2beta1/groups/" + string(w.org):     "GET, HEAD, POST, PATCH, DELETE",
		"GET /iam/v2beta1/roleBindings:batchCreate":        "POST",
		"HEAD /sts/exchange_refresh_token":                 "POST",
		"DELETE /sts/exchange":                             "GET, HEAD, POST",
		"POST /openapi.json":                               "GET, HEAD",
		"POST /advisories/v1/export":                       "GET, HEAD",
		"POST /iam/v2beta1/identities:lookupIdentity":      "GET, HEAD",
		"PURGE /iam/v1/groups/" + string(w.org.NewChild()): "POST, PUT, DELETE",
	} {
		resp, body := ask(t, w, request, "Authorization", "")
		if got := resp.Header.Get("Allow"); resp.StatusCode != 405 || got != want {
			t.Errorf("%s: %d, Allow %q, want %q: %s", request, resp.StatusCode, got, want, body)
		}
		if !strings.HasPrefix(request, "HEAD") && !strings.Contains(body, `"code":12`) {
			t.Errorf("%s: %s", request, body)
		}
	}
	if resp, _ := ask(t, w, "PUT /nowhere"); resp.StatusCode != 404 || resp.Header.Get("Allow") != "" {
		t.Errorf("no path: %d, Allow %q", resp.StatusCode, resp.Header.Get("Allow"))
	}
}

// TestCompression: large answers of reads are compressed if the client accepts gzip.
func TestCompression(t *testing.T) {
	w := newWorld(t)
	for i := range 150 {
		body := fmt.Sprintf(`{"name":"group %d","description":%q}`, i, strings.Repeat("x", 200))
		if got := w.do(t, "POST /iam/v2beta1/groups/"+string(w.org), body); got.status != 200 {
			t.Fatal(got.text)
		}
	}
	const large = "GET /iam/v2beta1/groups?page_size=200"
	plain, want := ask(t, w, large)
	if plain.Header.Get("Content-Encoding") != "" || plain.Header.Get("Vary") != "Accept-Encoding" {
		t.Errorf("for one who does not ask: %v", plain.Header)
	}
	for _, accepted := range []string{"gzip", "br, GZIP;q=0.5", "deflate,gzip ; q=1"} {
		resp, body := ask(t, w, large, "Accept-Encoding", accepted)
		if resp.Header.Get("Content-Encoding") != "gzip" || resp.ContentLength != int64(len(body)) ||
			len(body) > len(want)/4 {
			t.Fatalf("%s: %v, %d bytes of %d", accepted, resp.Header, len(body), len(want))
		}
		z := check(gzip.NewReader(strings.NewReader(body)))(t)
		if got := check(io.ReadAll(z))(t); string(got) != want {
			t.Errorf("%s: another answer: %.100s", accepted, got)
		}
	}
	for request, accepted := range map[string]string{
		large:                                  "gzip;q=0, *",
		large + "&order_by=name":               "identity",
		"GET /iam/v2beta1/groups?page_size=50": "gzip", // too small to be compressed
		// The answer to an exchange is never compressed, however long it is.
		"GET /sts/exchange?aud=" + strings.Repeat("x", 40<<10): "gzip",
	} {
		if resp, _ := ask(t, w, request, "Accept-Encoding", accepted); resp.Header.Get("Content-Encoding") != "" {
			t.Errorf("%.60s, %s: %v", request, accepted, resp.Header)
		}
	}
	resp, body := ask(t, w, "GET /openapi.json", "Accept-Encoding", "gzip", "Authorization", "")
	if resp.Header.Get("Content-Encoding") != "gzip" || len(body) < 1000 {
		t.Errorf("the description: %v, %d bytes", resp.Header, len(body))
	}
}

// TestExchangeInJSON: the token service also reads the parameters of an exchange from a
// JSON body, which older clients send.
func TestExchangeInJSON(t *testing.T) {
	w := newWorld(t)
	const in = "POST /sts/exchange"
	form, uid := []string{"Content-Type", "application/x-www-form-urlencoded"}, string(w.org)
	for name, tt := range map[string]struct {
		request, body string
		header        []string
		status        int
		about         string
	}{
		"a list": {in, `{"aud":["` + audience + `"]}`, nil, 200, ""},
		"one text": {
			in, ` {"aud":"` + audience + `","cap":"groups.list","identityProvider":null}`, nil, 200, "",
		},
		"said to be a form": {in, `{"aud":"` + audience + `"}`, form, 200, ""},
		"a form":            {in, "aud=" + audience, form, 200, ""},
		"nothing":           {in, ``, nil, 400, "aud"},
		"no parameters":     {in, `{}`, nil, 400, "aud"},
		"another audience":  {in, `{"aud":["https://evil.example.com"]}`, nil, 400, "aud"},
		"a mistyped key":    {in, `{"aud":"` + audience + `","identiy":"x"}`, nil, 400, "identiy"},
		"a key in two spellings": {
			in, `{"aud":"` + audience + `","identity_provider":"` + uid + `","identityProvider":"` + uid + `"}`, nil, 400,
			"identity_provider",
		},
		"a list where one is meant":    {in, `{"aud":"` + audience + `","identity":["` + uid + `"]}`, nil, 400, "identity"},
		"a number":                     {in, `{"aud":1}`, nil, 400, "aud"},
		"half of it":                   {in, `{"aud":`, nil, 400, "body"},
		"an object in it":              {in, `{"aud":{"x":[]}}`, nil, 400, "aud"},
		"with a query, it is not read": {in + "?aud=" + audience, `{"aud":["x"],"y"`, nil, 200, ""},
		"a provider that is no uid": {
			in, `{"aud":"` + audience + `","identity_provider":"zzz"}`, nil, 400, "identity_provider",
		},
		"beside an identity, too": {
			in + "?aud=" + audience + "&identity=" + uid + "&identity_provider=zzz", "", nil, 400, "identity_provider",
		},
		"an identity that is no uid": {in, `{"aud":"` + audience + `","identity":"zzz"}`, nil, 400, "identity"},
	} {
		t.Run(name, func(t *testing.T) {
			got := w.do(t, tt.request, tt.body, tt.header...)
			if got.status != tt.status || !strings.Contains(got.text, tt.about+":") {
				t.Errorf("%d %s, want %d about %q", got.status, got.text, tt.status, tt.about)
			}
		})
	}
}
