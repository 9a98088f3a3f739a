package app

import "tidegate/pkg/credit"

// Credits is the process's ledger of what WeChat still takes for followers; nil if
// it is switched off.
func (e *engines) Credits() (*credit.Ledger, error) {
	if e.credits != nil || e.cfg.Credit.Off {
		return e.credits, nil
	}
	r, err := e.Redis()
	if err != nil {
		return nil, err
	}
	e.credits, err = credit.New(e.cfg.Credit, r, nil, e.reg)
	return e.credits, err
}
