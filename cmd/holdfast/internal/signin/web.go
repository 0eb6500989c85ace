package signin

import (
	"context"
	"fmt"
	"net/url"
	"strings"
)

// A Page is a page of a server for the browser.
type Page struct {
	path   string
	search string // text to search for in the page
	issuer bool   // whether the page is served by the issuer
}

// AccountPage returns the page with a person's account and sessions.
func AccountPage() Page { return Page{path: "/account", issuer: true} }

// ConsolePage returns a page of the console.
func ConsolePage(path string) Page { return Page{path: "/console" + path} }

// DocsPage returns the API reference. If path is not "", the page shows the search
// results for it.
func DocsPage(path string) Page {
	path, _, _ = strings.Cut(path, "?")
	if path == "" {
		return Page{path: "/docs/reference/"}
	}
	return Page{path: "/docs/search", search: path}
}

// pageAddress returns the address of a page of the server in the settings.
func (a *Agent) pageAddress(p Page) (string, error) {
	server, err := a.Server()
	if err != nil {
		return "", err
	}
	base := server.Text
	if p.issuer {
		if base, err = a.Issuer(); err != nil {
			return "", err
		}
	}
	address := strings.TrimRight(base, "/") + p.path
	if p.search != "" {
		address += "?" + url.Values{"q": {p.search}}.Encode()
	}
	return address, nil
}

// Browse opens a page in the person's browser. If there is no browser, it prints the
// address.
func (a *Agent) Browse(ctx context.Context, p Page) error {
	address, err := a.pageAddress(p)
	if err != nil {
		return err
	}
	if openBrowser(ctx, address) {
		a.Note("a browser opens; if it does not, open %s", address)
		return nil
	}
	fmt.Fprintln(a.Out, address)
	return nil
}
