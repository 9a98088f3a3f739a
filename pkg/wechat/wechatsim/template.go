package wechatsim

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// fieldPattern finds the named fields of a template's content.
var fieldPattern = regexp.MustCompile(`\{\{\s*([A-Za-z_]+[0-9]*)\.DATA\s*\}\}`)

// maxURL is the longest jump address of a template message.
const maxURL = 1024

// check holds a push against its template. Without configured templates any id
// is good, and only the values are checked.
func (q *pushRequest) check(templates []Template, kind string) *apiError {
	if q.ToUser == "" {
		return refusal(errInvalidOpenID)
	}
	if q.TemplateID == "" {
		return refusal(errTemplateID)
	}
	if len(q.URL) > maxURL {
		return refusal(errURLSize)
	}
	if q.MiniProgram != nil && q.MiniProgram.AppID == "" {
		return refusal(errMiniAppID)
	}
	required, err := requiredFields(templates, q.TemplateID, kind)
	if err != nil {
		return err
	}
	for _, name := range required {
		if q.Data[name].Value == "" {
			return argument("data.%s.value is empty", name)
		}
	}
	if len(q.Data) == 0 {
		return argument("data is empty")
	}
	for name, v := range q.Data {
		if !fits(name, v.Value) {
			return argument("data.%s.value invalid", name)
		}
	}
	return nil
}

func requiredFields(templates []Template, id, kind string) ([]string, *apiError) {
	if len(templates) == 0 {
		return nil, nil
	}
	for _, t := range templates {
		if t.ID != id || t.kind() != kind {
			continue
		}
		var names []string
		for _, m := range fieldPattern.FindAllStringSubmatch(t.Content, -1) {
			names = append(names, m[1])
		}
		return names, nil
	}
	return nil, refusal(errTemplateID)
}

func (t Template) kind() string {
	if t.Kind == "" {
		return "template"
	}
	return t.Kind
}

// fits holds a value against the limits of its key's type; keys without a known
// type take anything.
func fits(name, value string) bool {
	kind := strings.TrimRight(name, "0123456789")
	n := utf8.RuneCountInString(value)
	switch kind {
	case "thing":
		return n <= 20
	case "number":
		return n <= 32 && digitsOnly(value)
	case "letter", "character_string":
		return n <= 32 && !hasHan(value)
	case "symbol", "phrase":
		return n <= 5
	case "phone_number":
		return n <= 17
	case "car_number":
		return n <= 8
	case "amount":
		return n <= 12
	case "name":
		return n <= 10 || (n <= 20 && !hasHan(value))
	}
	return true
}

func digitsOnly(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' && r != '-' }) < 0
}

func hasHan(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return unicode.Is(unicode.Han, r) }) >= 0
}

type templateListBody struct {
	TemplateList []templateItem `json:"template_list"`
}

type templateItem struct {
	TemplateID      string `json:"template_id"`
	Title           string `json:"title"`
	PrimaryIndustry string `json:"primary_industry"`
	DeputyIndustry  string `json:"deputy_industry"`
	Content         string `json:"content"`
	Example         string `json:"example"`
}

type subscriptionListBody struct {
	Errcode int                `json:"errcode"`
	Errmsg  string             `json:"errmsg"`
	Data    []subscriptionItem `json:"data"`
}

type subscriptionItem struct {
	ID      string `json:"priTmplId"`
	Title   string `json:"title"`
	Content string `json:"content"`
	Example string `json:"example"`
	Type    int    `json:"type"` // 2: for one time
}

func subscriptionList(c *call) (any, *apiError) {
	list := []subscriptionItem{}
	for _, t := range c.acct.cfg.Templates {
		if t.kind() == "subscribe" {
			list = append(list, subscriptionItem{t.ID, t.Title, t.Content, "", 2})
		}
	}
	return subscriptionListBody{0, "ok", list}, nil
}

func templateList(c *call) (any, *apiError) {
	list := []templateItem{}
	for _, t := range c.acct.cfg.Templates {
		if t.kind() == "template" {
			list = append(list, templateItem{t.ID, t.Title, "IT科技", "互联网|电子商务", t.Content, ""})
		}
	}
	return templateListBody{list}, nil
}
