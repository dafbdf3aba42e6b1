"""The look of the pages of the demo and of the validation."""

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2rem } h3 { font-size: 1rem; margin-top: 1.5rem }
table { border-collapse: collapse } td, th { padding: .3rem 1rem; border-bottom: 1px solid #ddd; text-align: right }
td.text, th.text { text-align: left } tr.bad td, p.bad { color: #a02020 }
tr.chosen { background: #e8f4e8; font-weight: 600 } .limits { color: #666; font-size: .9rem } pre { overflow-x: auto }
"""
