package login

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

const (
	providerCookie = "hf_provider"
	sealedProvider = "last provider"
)

// A lastProvider is the provider of the last sign-in in a browser. It is stored in a cookie and authenticates nobody.
// The cookie is sealed, so that nobody can learn the name of a provider with a forged cookie.
type lastProvider struct {
	Provider resource.UID `json:"provider"`
	Expires  int64        `json:"until"` // in seconds since 1970
}

// rememberProvider stores the provider of a sign-in in the browser, so that the sign-in page
// offers it first. The provider "" deletes the stored one, because the person has signed in
// without a provider.
func (s *Service) rememberProvider(w http.ResponseWriter, provider resource.UID) {
	if provider == "" {
		http.SetCookie(w, s.site.Cookie(providerCookie, "", 0))
		return
	}
	b, err := json.Marshal(lastProvider{provider, s.cfg.Now().Add(knownLife).Unix()})
	if err != nil {
		return // cannot happen; the cookie is optional in any case
	}
	http.SetCookie(w, s.site.SealedCookie(providerCookie, sealedProvider, b, knownLife))
}

// offerLastProvider moves the last provider of the browser to the start of the list, if it can
// still be used.
func (s *Service) offerLastProvider(r *http.Request, f *flow, p *signInPage) error {
	var last lastProvider
	b, ok := s.site.OpenCookie(r, providerCookie, sealedProvider)
	if !ok || json.Unmarshal(b, &last) != nil || s.cfg.Now().Unix() >= last.Expires {
		return nil
	}
	if f.Organization != "" {
		i := slices.IndexFunc(p.Providers, func(c Choice) bool { return c.UID == string(last.Provider) })
		if i > 0 {
			used := p.Providers[i]
			p.Providers = slices.Insert(slices.Delete(p.Providers, i, i+1), 0, used)
		}
		return nil
	}
	idp, err := s.store.Provider(r.Context(), last.Provider)
	if errors.Is(err, fault.NotFound) || err == nil && idp.Disabled {
		return nil
	}
	if err != nil {
		return err
	}
	org, err := s.admin.OrganizationName(r.Context(), idp.UID)
	p.Providers = []Choice{{string(idp.UID), idp.Name, org}}
	return err
}
